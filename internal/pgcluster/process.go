//go:build unix

package pgcluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// process is a server that a script runs in a folder of its own. The script ends the server when its standard input
// ends, which happens even if the test process panics or is killed.
type process struct {
	dir    string
	user   *syscall.Credential // nil for the user of the tests
	script *exec.Cmd
	alive  io.Closer // the server ends when this is closed
}

// newProcess creates the folder of a server. The path of a Unix socket must be short, and the server's user must be
// able to enter its folder.
func newProcess() (*process, error) {
	dir, err := os.MkdirTemp("/tmp", "honkerpg")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir}
	if p.user, err = unprivileged(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

// command returns a command that the server's user runs.
func (p *process) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = "/"
	// Signals from the terminal must not kill the script before it has stopped the server.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.user}
	return c
}

// run starts a script and returns when it has printed a line. If the server does not start, run removes its folder.
func (p *process) run(script string, args ...string) (err error) {
	p.script = p.command("sh", append([]string{"-c", script, "sh"}, args...)...)
	if p.alive, err = p.script.StdinPipe(); err != nil {
		return err
	}
	out, err := p.script.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.script.Start(); err != nil {
		return errors.Join(err, os.RemoveAll(p.dir))
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
		return fmt.Errorf("%w\n%s", errors.Join(err, p.Stop()), log)
	}
	return nil
}

// Stop stops the server and removes its folder.
func (p *process) Stop() error {
	return errors.Join(p.alive.Close(), p.script.Wait(), os.RemoveAll(p.dir))
}

// unprivileged returns the user that the server runs as, and gives it dir. PostgreSQL refuses to run as root.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err, err2, os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

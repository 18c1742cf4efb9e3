//go:build unix

// Package pgcluster starts throwaway PostgreSQL servers for tests.
package pgcluster

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// server is the script that creates and runs the cluster. It stops the server when its standard input ends,
// which happens even if the test process panics or is killed.
//
//go:embed server.sh
var server string

// Cluster is a running server on a Unix socket. Its data does not survive it.
type Cluster struct {
	dir     string
	command *exec.Cmd
	alive   io.Closer // the server stops when this is closed
}

// ErrNoServer reports that PostgreSQL is not installed.
var ErrNoServer = errors.New("no PostgreSQL server programs: install Debian's package postgresql, or set HONKER_TEST_POSTGRES")

// Start creates a cluster and starts its server. settings are lines of postgresql.conf. Without them the server keeps
// nothing on the disk on purpose, and its buffers are small.
func Start(settings ...string) (*Cluster, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	// The path of a Unix socket must be short, and the server's user must be able to enter its folder.
	dir, err := os.MkdirTemp("/tmp", "honkerpg")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, command: exec.Command("sh", append([]string{"-c", server, "sh", bin, dir}, settings...)...)}
	c.command.Dir = "/"
	// Signals from the terminal must not kill the script before it has stopped the server.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.command.SysProcAttr.Credential, err = unprivileged(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if c.alive, err = c.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, fmt.Errorf("the server has not started: %w\n%s", errors.Join(err, c.Stop()), log)
	}
	return c, nil
}

// Installed reports whether there are server programs.
func Installed() bool {
	_, err := programs()
	return err == nil
}

// programs returns the folder of the newest server programs.
func programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil && len(found) == 0 {
		found = append(found, path)
	}
	if len(found) == 0 {
		return "", ErrNoServer
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
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

// DSN returns the connection string of the server.
func (c *Cluster) DSN() string { return "host=" + c.dir + " user=honker dbname=postgres" }

// Stop stops the server and removes its folder.
func (c *Cluster) Stop() error {
	return errors.Join(c.alive.Close(), c.command.Wait(), os.RemoveAll(c.dir))
}

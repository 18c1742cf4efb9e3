//go:build unix

// Package pgtest runs tests on a PostgreSQL server, each with a schema of its own.
//
// The server is the server of HONKER_TEST_POSTGRES, which holds a connection string. Without it, a test process
// starts a throwaway cluster on a Unix socket when its first test asks for it, and stops the cluster at its end.
package pgtest

import (
	"bufio"
	"context"
	"crypto/rand"
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
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// server is the script that creates and runs the cluster. It stops the server when its standard input ends,
// which happens even if the test process panics or is killed.
//
//go:embed server.sh
var server string

// cluster is a running throwaway cluster.
type cluster struct {
	dir     string
	command *exec.Cmd
	alive   io.Closer // the server stops when this is closed
}

// running is the cluster of this process. It is nil until a test needs it.
var running struct {
	sync.Mutex
	cluster *cluster
	err     error // a failed start is not repeated for each test
}

// errNoServer reports that PostgreSQL is not installed.
var errNoServer = errors.New("no PostgreSQL server programs: install Debian's package postgresql, or set HONKER_TEST_POSTGRES")

// Main runs the tests of a package, stops the server that they have started, and fails if goroutines are left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// DSN returns the connection string of the server. It skips the test if PostgreSQL is not installed, and fails
// it if CI is set.
func DSN(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv("HONKER_TEST_POSTGRES"); dsn != "" {
		return dsn
	}
	running.Lock()
	defer running.Unlock()
	if running.cluster == nil && running.err == nil {
		running.cluster, running.err = start()
	}
	switch {
	case errors.Is(running.err, errNoServer) && os.Getenv("CI") == "":
		t.Skip(running.err)
	case running.err != nil:
		t.Fatal(running.err)
	}
	return running.cluster.dsn()
}

// Schema returns the name of a schema that does not exist. Whatever the test creates in it is dropped at the
// end of the test.
func Schema(t testing.TB) string {
	t.Helper()
	dsn, name := DSN(t), "honker_test_"+rand.Text()
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), `DROP SCHEMA IF EXISTS `+pgx.Identifier{name}.Sanitize()+` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	return name
}

// start creates a cluster and starts its server.
func start() (*cluster, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	// The path of a Unix socket must be short, and the server's user must be able to enter its folder.
	dir, err := os.MkdirTemp("/tmp", "honkerpg")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, command: exec.Command("sh", "-c", server, "sh", bin, dir)}
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
		return nil, fmt.Errorf("the server has not started: %w\n%s", errors.Join(err, c.stop()), log)
	}
	return c, nil
}

// programs returns the folder of the newest server programs.
func programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil && len(found) == 0 {
		found = append(found, path)
	}
	if len(found) == 0 {
		return "", errNoServer
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

func (c *cluster) dsn() string { return "host=" + c.dir + " user=honker dbname=postgres" }

// stop stops the server and removes its folder.
func (c *cluster) stop() error {
	return errors.Join(c.alive.Close(), c.command.Wait(), os.RemoveAll(c.dir))
}

// stop stops the server of this process, if a test has started it.
func stop() error {
	running.Lock()
	defer running.Unlock()
	if running.cluster == nil {
		return nil
	}
	return running.cluster.stop()
}

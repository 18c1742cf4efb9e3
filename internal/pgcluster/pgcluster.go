//go:build unix

// Package pgcluster starts throwaway PostgreSQL servers for tests.
package pgcluster

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// server is the script that creates and runs the cluster. It stops the server when its standard input ends,
// which happens even if the test process panics or is killed.
//
//go:embed server.sh
var server string

// Cluster is a running server on a Unix socket. Its data does not survive it.
type Cluster struct {
	*process
	bin string // folder of the server programs
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
	p, err := newProcess()
	if err != nil {
		return nil, err
	}
	if err := p.run(server, append([]string{bin, p.dir}, settings...)...); err != nil {
		return nil, fmt.Errorf("the server has not started: %w", err)
	}
	return &Cluster{p, bin}, nil
}

// StartStandby starts a standby that follows the server. Its name for synchronous_standby_names is [StandbyName].
func (c *Cluster) StartStandby() (*Cluster, error) {
	p, err := newProcess()
	if err != nil {
		return nil, err
	}
	source := "host=" + c.dir + " user=honker application_name=" + StandbyName
	copied := p.command(filepath.Join(c.bin, "pg_basebackup"), "-d", source, "-D", filepath.Join(p.dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	if out, err := copied.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("pg_basebackup: %w\n%s", err, out), os.RemoveAll(p.dir))
	}
	if err := p.run(server, c.bin, p.dir); err != nil {
		return nil, fmt.Errorf("the standby has not started: %w", err)
	}
	return &Cluster{p, c.bin}, nil
}

// StandbyName is the name of a standby of [Cluster.StartStandby] at its primary.
const StandbyName = "standby"

// Promote makes a standby a primary, and returns when it accepts writes.
func (c *Cluster) Promote() error { return c.control("-w", "-t", "120", "promote") }

// Crash ends the server without a shutdown. Its folder remains until Stop.
func (c *Cluster) Crash() error { return c.control("-w", "-t", "120", "-m", "immediate", "stop") }

// control runs pg_ctl on the server.
func (c *Cluster) control(args ...string) error {
	args = append([]string{"-s", "-D", filepath.Join(c.dir, "data")}, args...)
	if out, err := c.command(filepath.Join(c.bin, "pg_ctl"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl %s: %w\n%s", args[len(args)-1], err, out)
	}
	return nil
}

// Restart stops the server and starts it again. The mode is "fast", which ends all connections, or "immediate", after
// which the server recovers as it does after a crash.
func (c *Cluster) Restart(mode string) error {
	return c.control("-w", "-t", "120", "-m", mode, "-l", filepath.Join(c.dir, "log"), "restart")
}

// Standby makes the server a standby of no primary, which only accepts reads.
func (c *Cluster) Standby() error {
	if out, err := c.command("touch", filepath.Join(c.dir, "data", "standby.signal")).CombinedOutput(); err != nil {
		return fmt.Errorf("standby: %w\n%s", err, out)
	}
	return c.Restart("fast")
}

// Version returns the version of the server programs, or "" if there are none.
func Version() string {
	bin, err := programs()
	if err != nil {
		return ""
	}
	text, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Program returns the path of a program of PostgreSQL, such as psql.
func Program(name string) (string, error) {
	if bin, err := programs(); err == nil {
		return filepath.Join(bin, name), nil
	}
	return exec.LookPath(name)
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

// DSN returns the connection string of the server.
func (c *Cluster) DSN() string { return "host=" + c.dir + " user=honker dbname=postgres" }

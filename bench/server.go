package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The contestants that are servers of their own, not SQLite files. They take part where
// they are installed, to show what one more process buys; no target is judged by them.
const (
	asynqName     = "asynq"
	jetStreamName = "JetStream"
)

func isServer(contestant string) bool {
	return slices.Contains([]string{asynqName, jetStreamName}, contestant)
}

// server is one that this process has started, or one that another process has and that
// this one uses.
type server struct {
	cmd   *exec.Cmd // nil: another's
	stdin io.Closer
	app   *sql.DB // the application's own file
	addr  string
}

// startServer runs command, unless a server for path is there already. The address
// becomes known by the file that where names; the server ends with this process.
func startServer(ctx context.Context, path string, where func() (network, addr string, err error), command ...string) (*server, error) {
	app, err := openSingle(ctx, path, Normal, "")
	if err != nil {
		return nil, err
	}
	s := &server{app: app}
	if s.addr, err = dial(where); err == nil {
		return s, nil
	}
	if err := s.start(command); err != nil {
		return nil, errors.Join(err, app.Close())
	}
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
		if s.addr, err = dial(where); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%s does not answer: %w", command[0], err), s.Close())
}

// The shell reads to the end of its input, which comes with Close and with the end of
// this process, whatever the reason.
const lifeline = `"$@" >/dev/null 2>&1 & server=$!; cat >/dev/null; kill $server; wait $server`

func (s *server) start(command []string) (err error) {
	s.cmd = exec.Command("sh", append([]string{"-c", lifeline, "sh"}, command...)...)
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	return s.cmd.Start()
}

func dial(where func() (network, addr string, err error)) (string, error) {
	network, addr, err := where()
	if err != nil {
		return "", err
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return "", err
	}
	return addr, c.Close()
}

func (s *server) SQL() *sql.DB { return s.app }

func (s *server) Close() error {
	err := s.app.Close()
	if s.cmd != nil {
		_ = s.stdin.Close()
		_ = s.cmd.Wait() // ended by a signal, as it should
	}
	return err
}

// scratch is a folder of the server's for what belongs to path.
func scratch(path, name string) (string, error) {
	dir := filepath.Join(filepath.Dir(path), name)
	return dir, os.MkdirAll(dir, 0o700)
}

// installed adds the server contestants with programs that are here.
func installed(all []Contestant) []Contestant {
	for program, c := range map[string]func() Contestant{redisServer: asynqs, natsServer: jetStreams} {
		if _, err := exec.LookPath(program); err == nil {
			all = append(all, c())
		}
	}
	slices.SortStableFunc(all, func(a, b Contestant) int { return order(a) - order(b) })
	return all
}

// order has the servers last, and always in the same way.
func order(c Contestant) int {
	return slices.Index([]string{asynqName, jetStreamName}, c.Name)
}

// absent are those that do not take part, and why.
func absent() []Skip {
	skips := []Skip{{"watermill-sqlite", "its module is not served by the module proxy"}}
	for _, s := range []struct{ name, program string }{{asynqName, redisServer}, {jetStreamName, natsServer}} {
		if _, err := exec.LookPath(s.program); err != nil {
			skips = append(skips, Skip{s.name, s.program + " is not installed"})
		}
	}
	return skips
}

// serverVersions is what the programs that are here say of themselves.
func serverVersions() (out []string) {
	for _, program := range []string{redisServer, natsServer} {
		if text, err := exec.Command(program, "--version").Output(); err == nil {
			out = append(out, strings.TrimSpace(string(text)))
		}
	}
	return out
}

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

// Contestants that are servers rather than SQLite files. They take part if they are installed, to
// show the benefit of a separate process. Targets do not consider them.
const (
	asynqName     = "asynq"
	jetStreamName = "JetStream"
)

func isServer(contestant string) bool {
	return slices.Contains([]string{asynqName, jetStreamName}, contestant)
}

// server is a running server, which may have been started by another process of this program.
type server struct {
	cmd   *exec.Cmd // nil if another process started it
	stdin io.Closer
	app   *sql.DB // file with the application's rows
	addr  string
}

// startServer runs command unless a server for path is already running. It waits until the function
// where returns the address. The server exits together with this process.
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

// lifeline is a shell script that kills the server at the end of its stdin. The end comes with
// Close or when this process exits for any reason.
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
		_ = s.cmd.Wait() // exits with a signal, as expected
	}
	return err
}

// scratch creates a directory for the files of a server, next to path.
func scratch(path, name string) (string, error) {
	dir := filepath.Join(filepath.Dir(path), name)
	return dir, os.MkdirAll(dir, 0o700)
}

// installed appends the servers whose programs are installed.
func installed(all []Contestant) []Contestant {
	for program, c := range map[string]func() Contestant{redisServer: asynqs, natsServer: jetStreams} {
		if _, err := exec.LookPath(program); err == nil {
			all = append(all, c())
		}
	}
	slices.SortStableFunc(all, func(a, b Contestant) int { return order(a) - order(b) })
	return all
}

// order sorts servers last and in a fixed order.
func order(c Contestant) int {
	return slices.Index([]string{asynqName, jetStreamName}, c.Name)
}

// absent returns the contestants that do not take part, with the reasons.
func absent() []Skip {
	skips := []Skip{{"watermill-sqlite", "its module is not served by the module proxy"}}
	for _, s := range []struct{ name, program string }{{asynqName, redisServer}, {jetStreamName, natsServer}} {
		if _, err := exec.LookPath(s.program); err != nil {
			skips = append(skips, Skip{s.name, s.program + " is not installed"})
		}
	}
	if postgresVersion() == "" {
		skips = append(skips, Skip{"honkerpg and River on PostgreSQL", "the server is not installed"})
	}
	return skips
}

// serverVersions returns the version texts of the installed servers.
func serverVersions() (out []string) {
	for _, program := range []string{redisServer, natsServer} {
		if text, err := exec.Command(program, "--version").Output(); err == nil {
			out = append(out, strings.TrimSpace(string(text)))
		}
	}
	if version := postgresVersion(); version != "" {
		out = append(out, version)
	}
	return out
}

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// binary is the path of the command: a copy of the test program, which runs the command if it is called
// honker. golden is the directory with the golden files.
var binary, golden string

func TestMain(m *testing.M) {
	testkit.NoDisk()
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "honker" {
		os.Exit(mainCode())
	}
	flag.Parse()
	time.Local = time.UTC
	must(os.Unsetenv(fileVariable))
	dir := must1(os.MkdirTemp("", "honker"))
	binary, golden = filepath.Join(dir, "honker"), must1(filepath.Abs("testdata"))
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	must(os.WriteFile(binary, must1(os.ReadFile(must1(os.Executable()))), 0o755))
	goleak.VerifyTestMain(tests{m}, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// tests stops the server of the tests after them.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer func() { must(stopServer()) }()
	return t.M.Run()
}

// stopServer stops the PostgreSQL server, if a test has started one.
var stopServer = func() error { return nil }

func must1[T any](value T, err error) T {
	must(err)
	return value
}

// person runs commands on a file, with or without a terminal.
type person struct {
	t      *testing.T
	stdin  string
	atTerm bool
	width  int // of the terminal; 0 for any
	color  bool
	first  []string // flags before each command
	env    map[string]string
}

// said is a command's output and exit code.
type said struct {
	out, err string
	code     int
}

// run runs a command within the test process.
func (p *person) run(args ...string) said {
	p.t.Helper()
	return p.runCtx(p.t.Context(), args...)
}

func (p *person) runCtx(ctx context.Context, args ...string) said {
	var out, err bytes.Buffer
	code := run(ctx, append(slices.Clone(p.first), args...), console{
		stdin: strings.NewReader(p.stdin), stdout: &out, stderr: &err,
		inTerm: p.atTerm, outTerm: p.atTerm, width: p.width, color: p.color,
		getenv: func(name string) string { return p.env[name] },
		actor:  "ann@example", noNotices: true, patience: deadline,
	})
	return said{out.String(), err.String(), code}
}

// session runs a sequence of commands and records their output as a terminal would show it. Lines
// of standard error begin with "! ".
type session struct {
	person
	text strings.Builder
}

func (s *session) do(args ...string) said {
	s.t.Helper()
	got := s.run(args...)
	line := make([]string, len(args))
	for i, arg := range args {
		line[i] = shellWord(arg)
	}
	fmt.Fprintf(&s.text, "$ honker %s\n%s", strings.Join(line, " "), got.out)
	dir := must1(os.Getwd()) + string(filepath.Separator)
	for line := range strings.Lines(got.err) {
		fmt.Fprintf(&s.text, "! %s\n", strings.TrimRight(strings.ReplaceAll(line, dir, "DIR/"), " \n"))
	}
	if got.code != 0 {
		fmt.Fprintf(&s.text, "[exit code %d]\n", got.code)
	}
	s.text.WriteString("\n")
	return got
}

// instance matches the suffix that identifies a member's process.
var instance = regexp.MustCompile(`("instance": ?)"[^"]*"`)

// matches compares the session with its golden file.
func (s *session) matches(name string) {
	s.t.Helper()
	text := instance.ReplaceAllString(s.text.String(), `$1"host-1-X"`)
	path := filepath.Join(golden, name+".golden")
	if *update {
		require.NoError(s.t, os.MkdirAll(golden, 0o755))
		require.NoError(s.t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(s.t, err, "go test -update writes it")
	require.Equal(s.t, string(want), text, "go test -update, if this is what it should say")
}

// Package guide_test builds and runs the programs of README.md, llms.txt and docs/guide. A program that a
// reader pastes from a page has to work.
package guide_test

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/honker-go/honker/admin"
	_ "github.com/honker-go/honker/dispatch"
	_ "github.com/honker-go/honker/flow"
	_ "github.com/honker-go/honker/honkertest" // the programs use these packages; go test reruns the tests when they change
	_ "github.com/honker-go/honker/inbox"
	_ "github.com/honker-go/honker/observe"
	_ "github.com/honker-go/honker/relay"
	_ "github.com/honker-go/honker/ui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const honker = "github.com/honker-go/honker"

// modules are the directories whose go.mod files the programs are built with. The first module that
// requires all imports of a program is used.
var modules = []string{".", "examples/metrics", "tests", "examples/orm", "bench", "honkerprom", "honkerotel", "honkerpg"}

// imported lists the modules above that users import.
var imported = []string{"honkerprom", "honkerotel", "honkerpg"}

// quickStart matches the commands of the README that run the first program.
var quickStart = regexp.MustCompile(`(?m)^go mod init demo .*\n(?:go .*\n)*`)

// A newcomer pastes the quick start into an empty directory next to the clone, and its commands into a shell. Then the
// program runs once more.
func TestReadme_QuickStart(t *testing.T) {
	t.Parallel()
	beside := t.TempDir()
	require.NoError(t, os.Symlink(top(t), filepath.Join(beside, "honker")))
	dir := filepath.Join(beside, "demo")
	first := blocksOf(t, "README.md")[0]
	require.True(t, first.isProgram(), "the README begins with a program")
	write(t, filepath.Join(dir, "main.go"), first.code)
	copyFile(t, filepath.Join(dir, "go.sum"), filepath.Join(top(t), "go.sum"))
	readme, err := os.ReadFile(filepath.Join(top(t), "README.md"))
	require.NoError(t, err)
	commands := quickStart.FindString(string(readme))
	require.NotEmpty(t, commands)

	offline := []string{"GOPROXY=off", "GOWORK=off"}
	require.Equal(t, "receipt for order 1 tea\n", run(t, dir, offline, "sh", "-e", "-c", commands))
	require.Equal(t, "receipt for order 2 tea\n", run(t, dir, offline, "go", "run", "."))
}

// A program is a Go block with a package clause. If the next block of its page is text, it is the expected
// output of the program. A test file is run with go test.
func TestGuide_Programs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	t.Parallel()
	built := 0
	for _, module := range modules {
		programs := programsOf(t, module)
		if len(programs) == 0 {
			continue
		}
		built += len(programs)
		dir := newModule(t, module)
		for _, p := range programs {
			write(t, filepath.Join(dir, p.name, p.file()), p.code)
		}
		run(t, dir, anyModule, "go", "vet", "./...")
		for _, p := range programs {
			t.Run(p.name, func(t *testing.T) { runProgram(t, filepath.Join(dir, p.name), p) })
		}
	}
	require.Greater(t, built, 8, "the walk has missed the programs")
}

// Go blocks are formatted with gofmt.
func TestGuide_Format(t *testing.T) {
	t.Parallel()
	for _, b := range guide(t) {
		formatted, err := format.Source([]byte(b.code))
		require.NoError(t, err, b.name)
		require.Equal(t, string(formatted), b.code, "%s is not in gofmt's form", b.name)
	}
}

// Go blocks that are not whole programs compile together with the declarations that a page assumes. The
// only error that is tolerated is an unused variable.
func TestGuide_Fragments(t *testing.T) {
	t.Parallel()
	dir := newModule(t, ".")
	fragments := 0
	for _, b := range guide(t) {
		if !b.isProgram() {
			fragments++
			write(t, filepath.Join(dir, b.name, "fragment.go"), b.inContext())
		}
	}
	require.Greater(t, fragments, 8, "the walk has missed the fragments")
	build := command(t, dir, anyModule, "go", "build", "-gcflags=-e", "./...")
	out, _ := build.CombinedOutput() // also fails for an unused variable
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "declared and not used") {
			t.Error(strings.TrimSpace(line))
		}
	}
}

// granted contains the imports, handles and application code that a page assumes.
const granted = `package fragment

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/inbox"
	"github.com/honker-go/honker/relay"
)

type (
	Address struct{}
	Change  struct{}
	Line    struct{}
	Mail    struct{}
	Receipt struct{ Order int64 }
)

var (
	ctx      context.Context
	db       *honker.DB
	changes  *honker.Stream[Change]
	lines    *honker.Stream[Line]
	mails    *honker.Queue[Mail]
	receipts *honker.Queue[Receipt]
	geocode  *honker.Queue[Address]
	hooks    *relay.Queue
	r        *http.Request
	w        http.ResponseWriter
	flusher  http.Flusher
	queries  interface {
		WithTx(*sql.Tx) interface {
			InsertOrder(ctx context.Context, item string) (int64, error)
		}
	}

	deliver func(context.Context, Mail) error
	deliverMail func(context.Context, *honker.Job[Mail]) error
	apply   func(context.Context, *honker.Event[Change]) error
	index   func(context.Context, Change) error
	locate  func(context.Context, Address) error
	repair  func(context.Context, *relay.DeadMessage) error
	report  func(context.Context, string, time.Time) error

	id                        int64
	errBusy, errNoSuchAddress error

	_ = []any{json.Valid, errors.New, fmt.Sprint, slog.Info, filepath.Join, sync.OnceFunc, admin.Queues, inbox.New, relay.New}
)

`

// inContext returns a fragment as a Go file. Declarations are placed at the top level, statements in a
// function.
func (b block) inContext() string {
	if strings.HasPrefix(b.code, "import ") {
		return "package fragment\n\n" + b.code
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "", granted+b.code, parser.SkipObjectResolution); err == nil {
		return granted + b.code
	}
	return granted + "func _() (failed error) {\n" + b.code + "\nreturn nil\n}\n"
}

// block is a Go block of a page. Its name consists of the page and the line.
type block struct {
	name   string
	code   string
	prints string // the text block behind it; empty if there is none
}

func (b block) isProgram() bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", b.code, parser.PackageClauseOnly)
	return err == nil
}

func (b block) isTest() bool {
	return !strings.Contains(b.code, "\npackage main\n") && !strings.HasPrefix(b.code, "package main\n")
}

func (b block) file() string {
	if b.isTest() {
		return "program_test.go"
	}
	return "main.go"
}

// imports returns the block's imports that are not in the standard library.
func (b block) imports(t *testing.T) (paths []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "", b.code, parser.ImportsOnly)
	require.NoError(t, err, b.name)
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err, b.name)
		if strings.Contains(strings.Split(path, "/")[0], ".") {
			paths = append(paths, path)
		}
	}
	return paths
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// blocksOf returns the Go blocks of a page.
func blocksOf(t *testing.T, page string) (blocks []block) {
	text, err := os.ReadFile(filepath.Join(top(t), page))
	require.NoError(t, err)
	all := fence.FindAllSubmatchIndex(text, -1)
	for i, at := range all {
		if string(text[at[2]:at[3]]) != "go" {
			continue
		}
		line := bytes.Count(text[:at[0]], []byte("\n")) + 1
		b := block{name: fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(page), ".md"), line), code: string(text[at[4]:at[5]])}
		if i+1 < len(all) && string(text[all[i+1][2]:all[i+1][3]]) == "text" {
			b.prints = string(text[all[i+1][4]:all[i+1][5]])
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// guide returns the Go blocks of the guide and of its summary in llms.txt.
func guide(t *testing.T) (blocks []block) {
	pages, err := filepath.Glob(filepath.Join(top(t), "docs", "guide", "*.md"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 5, "the walk has missed the pages")
	for _, page := range pages {
		blocks = append(blocks, blocksOf(t, filepath.Join("docs", "guide", filepath.Base(page)))...)
	}
	return append(blocks, blocksOf(t, "llms.txt")...)
}

// programsOf returns the programs that are built with module's go.mod.
func programsOf(t *testing.T, module string) (programs []block) {
	for _, b := range guide(t) {
		if b.isProgram() && moduleOf(t, b) == module {
			programs = append(programs, b)
		}
	}
	return programs
}

func moduleOf(t *testing.T, b block) string {
	for _, module := range modules {
		mod, err := os.ReadFile(filepath.Join(top(t), module, "go.mod"))
		require.NoError(t, err)
		if requiresAll(module, string(mod), b.imports(t)) {
			return module
		}
	}
	t.Fatalf("%s: no module requires all of %q", b.name, b.imports(t))
	return ""
}

func requiresAll(module, mod string, imports []string) bool {
	for _, path := range imports {
		if own := strings.TrimPrefix(path, honker+"/"); slices.Contains(imported, own) && own != module {
			return false
		}
		if path != honker && !strings.HasPrefix(path, honker+"/") && !requires(mod, path) {
			return false
		}
	}
	return true
}

// requires reports whether mod requires path or a module that contains it.
func requires(mod, path string) bool {
	for path != "." {
		if strings.Contains(mod, "\t"+path+" v") {
			return true
		}
		path = filepath.ToSlash(filepath.Dir(path))
	}
	return false
}

var (
	anyModule = []string{"GOFLAGS=-mod=mod", "GOWORK=off"}
	relative  = regexp.MustCompile(`=> (\.\S*)`)
)

// newModule creates a module with the requirements of a module of this repository.
func newModule(t *testing.T, module string) (dir string) {
	dir = t.TempDir()
	home := filepath.Join(top(t), module)
	copyFile(t, filepath.Join(dir, "go.mod"), filepath.Join(home, "go.mod"))
	writeSums(t, dir, home)
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	mod = relative.ReplaceAllFunc(mod, func(to []byte) []byte {
		return []byte("=> " + filepath.Join(home, string(to[len("=> "):])))
	})
	write(t, filepath.Join(dir, "go.mod"), string(mod))
	run(t, dir, anyModule, "go", "mod", "edit", "-module=demo", "-require="+honker+"@v0.0.0", "-replace="+honker+"="+top(t))
	if slices.Contains(imported, module) {
		path := honker + "/" + module
		run(t, dir, anyModule, "go", "mod", "edit", "-require="+path+"@v0.0.0", "-replace="+path+"="+home)
	}
	return dir
}

// writeSums writes a go.sum with the lines of a module and of the root. The go.sum of a module in a
// workspace lacks the lines of the root.
func writeSums(t *testing.T, dir, home string) {
	own, err := os.ReadFile(filepath.Join(home, "go.sum"))
	require.NoError(t, err)
	root, err := os.ReadFile(filepath.Join(top(t), "go.sum"))
	require.NoError(t, err)
	write(t, filepath.Join(dir, "go.sum"), string(own)+string(root))
}

func runProgram(t *testing.T, dir string, p block) {
	switch {
	case p.isTest():
		run(t, dir, anyModule, "go", "test", ".")
	case p.prints != "":
		run(t, dir, anyModule, "go", "build", "-ldflags=-s -w", "-o", "program", ".")
		require.Equal(t, p.prints, run(t, dir, nil, "./program"))
	}
}

// top returns the root directory of the repository.
func top(t *testing.T) string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	return dir
}

func command(t *testing.T, dir string, env []string, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	return cmd
}

// run runs a command and returns its output. The command has to succeed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := command(t, dir, env, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s %q\n%s%s", name, args, &stdout, &stderr)
	return stdout.String()
}

func write(t *testing.T, name, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func copyFile(t *testing.T, to, from string) {
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	write(t, to, string(text))
}

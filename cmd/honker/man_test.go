package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Each command listed by help has a page with all its flags, and there are no other pages. The pages do not depend
// on the time.
func TestMan_EachCommand(t *testing.T) {
	t.Parallel()
	var first, later map[string]string
	synctest.Test(t, func(t *testing.T) {
		first = manDir(t)
		time.Sleep(400 * 24 * time.Hour)
		later = manDir(t)
	})
	require.Equal(t, first, later)

	root := (&app{}).root()
	root.InitDefaultCompletionCmd()
	names := []string{"honker.1", "honker-concepts.1"}
	each(root, func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() {
			return
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		names = append(names, name+".1")
		page := first[name+".1"]
		require.Contains(t, page, "\n"+name+" - "+cmd.Short+"\n")
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) { require.Contains(t, page, `\fB--`+flag.Name+`\fP`, name) })
		if cmd.Example != "" {
			require.Contains(t, page, ".SH EXAMPLE\n.EX\n"+cmd.Example[:10], name)
		}
	})
	written := make([]string, 0, len(first))
	for name, page := range first {
		written = append(written, name)
		title := strings.ToUpper(strings.TrimSuffix(name, ".1"))
		require.True(t, strings.HasPrefix(page, `.TH "`+title+`" "1" "" "honker" "honker"`+"\n"), "%s: %.80s", name, page)
		require.NotContains(t, page, "spf13")
	}
	require.ElementsMatch(t, names, written)
	require.NotContains(t, written, "honker-man.1", "it is not listed")
}

// roffEscapes removes the escapes of roff.
var roffEscapes = strings.NewReplacer(`\&`, "", `\-`, "-")

// manDir returns the pages that the command writes into a new directory.
func manDir(t *testing.T) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "share", "man1")
	got := (&person{t: t}).run("man", dir)
	require.Zero(t, got.code, got.err)
	require.Empty(t, got.out)
	pages := map[string]string{}
	for _, file := range must1(os.ReadDir(dir)) {
		pages[file.Name()] = roffEscapes.Replace(string(must1(os.ReadFile(filepath.Join(dir, file.Name())))))
	}
	return pages
}

// Help texts are not Markdown: stars, underscores and brackets appear as they are, and indented lines are kept.
func TestMan_Texts(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{Use: "x", Long: "x *has* `no` _style_, <b>and</b> [no](link).\n\n  *as\n   it* is", Run: func(*cobra.Command, []string) {}}
	cmd.Flags().String("flag", "", "a `name` with *stars*")
	page := roffEscapes.Replace(string(must1(manPage(cmd))))
	require.Contains(t, page, "\nx *has* `no` _style_, <b>and</b> [no](link).\n")
	require.Contains(t, page, "\n  *as\n   it* is\n")
	require.Contains(t, page, "\ta name with *stars*\n")

	pages := manDir(t)
	require.Contains(t, pages["honker.1"], "or the only *.db in this directory")
	require.Contains(t, pages["honker-stream-tail.1"], `'orders:*'. With --follow`)
	require.Contains(t, pages["honker-work.1"], "HONKER_MAX_ATTEMPTS, HONKER_KEY and")
	require.Contains(t, pages["honker-work.1"], "\n  75     retry after --snooze")
	require.Contains(t, pages["honker-work.1"], `--workers\fP \fIint\fP`+"\n\tmaximum number of concurrent commands; default one for each processor\n", "not as many as this machine has")
	require.Contains(t, pages["honker-ui.1"], "ask for a name and password instead of the token: user:hash")
}

// Options have the names of their values, and their defaults as text. Pages refer to pages about the same things.
func TestMan_Options(t *testing.T) {
	t.Parallel()
	pages := manDir(t)
	for name, page := range pages {
		require.NotRegexp(t, `(?m)^\\fB-.*\\fP\[?=`, page, name)
	}
	jobs := pages["honker-jobs.1"]
	require.Contains(t, jobs, "\\fB--limit\\fP \\fIn\\fP\n\tlist at most n; 0 for all; default 50\n")
	require.Contains(t, jobs, "\\fB--count\\fP\n\tprint only")
	require.Contains(t, jobs, "\\fB-f\\fP, \\fB--file\\fP \\fIpath\\fP\n")
	_, references, _ := strings.Cut(jobs, ".SH SEE ALSO\n")
	for _, name := range []string{"honker", "honker-concepts", "honker-queue", "honker-dead"} {
		require.Contains(t, references, `\fB`+name+`(1)\fP`)
	}
	require.NotContains(t, references, "honker-jobs(1)")

	for _, cmd := range (&app{}).root().Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "completion" {
			require.NotEmpty(t, related(cmd), cmd.Name())
		}
	}
	require.Contains(t, (&person{t: t}).run("help", "concepts").out, "A consumer reads")
	require.Zero(t, (&person{t: t}).run("concepts").code)
}

func TestMan_Refused(t *testing.T) {
	t.Parallel()
	p := &person{t: t}
	require.Equal(t, codeUsage, p.run("man").code)
	require.Equal(t, codeUsage, p.run("man", t.TempDir(), "-o", "name").code)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	got := p.run("man", file)
	require.Equal(t, codeRefused, got.code, got.err)
	require.NotContains(t, p.run("--help").out, "\n  man ")
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// man writes the man pages. The command is meant for packagers and is hidden from the list of commands.
func (a *app) man() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the man pages of all commands",
		Long: `man writes a man page for each command into a directory, such as honker-queue-show.1. It creates the directory if needed.
The pages have no date, so the same version always writes the same pages. man needs no file.`,
		Example:     `  honker man /usr/local/share/man/man1`,
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{nameless: "yes"},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	return a.does(cmd, func(_ context.Context, args []string) error {
		pages, err := manPages((&app{console: a.console}).root())
		if err == nil {
			err = writePages(args[0], pages)
		}
		if err != nil {
			return &coded{code: codeRefused, err: err, try: "the same with another directory"}
		}
		a.note("%s in %s", plural(int64(len(pages)), "page"), args[0])
		return nil
	})
}

func writePages(dir string, pages map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, page := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manPages returns the pages of root and of all commands below it, by file name. It modifies the help texts of root and
// its subcommands.
func manPages(root *cobra.Command) (map[string][]byte, error) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	concepts, _, err := root.Find([]string{"concepts"})
	if err != nil {
		return nil, err
	}
	pages := map[string][]byte{}
	if err := addPages(pages, root); err != nil {
		return nil, err
	}
	return pages, addPages(pages, concepts)
}

func addPages(pages map[string][]byte, cmd *cobra.Command) error {
	page, err := manPage(cmd)
	if err != nil {
		return err
	}
	pages[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"] = page
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() {
			continue
		}
		if err := addPages(pages, below); err != nil {
			return err
		}
	}
	return nil
}

// manPage renders a page. The man package always writes a date and begins with a comment. Both are removed, so that
// the same version always produces the same page and the header comes first.
func manPage(cmd *cobra.Command) ([]byte, error) {
	cmd.DisableAutoGenTag = true
	cmd.InitDefaultHelpFlag()
	cmd.Long = markdown(cmd.Long)
	cmd.NonInheritedFlags().VisitAll(describe)
	var b bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Date: &time.Time{}, Source: "honker", Manual: "honker"}, &b); err != nil {
		return nil, fmt.Errorf("the page of %s: %w", cmd.CommandPath(), err)
	}
	page := bytes.TrimPrefix(b.Bytes(), []byte(".nh\n"))
	page = bytes.Replace(page, []byte(`"Jan 0001"`), []byte(`""`), 1)
	return withReferences(withValues(page, cmd), cmd), nil
}

// valueName is the annotation of a flag that has the name of its value.
const valueName = "value"

// describe prepares the text of a flag for the page. It adds the default, which the man package would write in place of the name
// of the value.
func describe(flag *pflag.Flag) {
	name, text := pflag.UnquoteUsage(flag)
	if isDefault := strings.Trim(flag.DefValue, "0s[]") != "" && flag.DefValue != "false"; isDefault && !strings.Contains(text, "default") {
		text += "; default " + flag.DefValue
	}
	flag.Usage = markdown(text)
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[valueName] = []string{name}
}

var optionLine = regexp.MustCompile(`(?m)^(\\fB(?:-[a-z]\\fP, \\fB)?--)([a-z-]+)\\fP\[?=.*$`)

// withValues replaces the defaults of options by the names of their values: --limit n instead of --limit=50.
func withValues(page []byte, cmd *cobra.Command) []byte {
	return optionLine.ReplaceAllFunc(page, func(line []byte) []byte {
		parts := optionLine.FindSubmatch(line)
		out := append(slices.Concat(parts[1], parts[2]), `\fP`...)
		if flag := cmd.Flag(string(parts[2])); flag != nil && len(flag.Annotations[valueName]) > 0 && flag.Annotations[valueName][0] != "" {
			out = append(out, ` \fI`+flag.Annotations[valueName][0]+`\fP`...)
		}
		return out
	})
}

// withReferences adds the page of concepts, and the commands of the same topic, to the references at the end of the page.
func withReferences(page []byte, cmd *cobra.Command) []byte {
	var names []string
	if cmd.Name() != "concepts" {
		names = append(names, "concepts")
	}
	if cmd.Parent() == cmd.Root() {
		names = append(names, related(cmd)...)
	}
	page = bytes.TrimRight(page, "\n")
	for _, name := range names {
		page = fmt.Appendf(page, ", \\fBhonker-%s(1)\\fP", name)
	}
	return append(page, '\n')
}

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<", `\<`, ">", `\>`)

// markdown escapes plain text. Indented lines become code blocks.
func markdown(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			lines[i] = "    " + line
			continue
		}
		lines[i] = markdownEscapes.Replace(line)
	}
	return strings.Join(lines, "\n")
}

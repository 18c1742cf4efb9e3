package honker_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README's code is that of the examples, which are run: each of its lines stands in
// one of them.
func TestCodeOfTheReadmeIsThatOfTheExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	known := exampleLines(t)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		for line := range strings.Lines(string(block[1])) {
			line = strings.TrimSpace(line)
			require.True(t, line == "" || known[line], "no example has the line %q", line)
		}
	}
}

func exampleLines(t *testing.T) map[string]bool {
	files, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	lines := make(map[string]bool)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		// An example's file lies in a folder of its own.
		for line := range strings.Lines(strings.ReplaceAll(string(text), "Open(ctx, path,", `Open(ctx, "app.db",`)) {
			lines[strings.TrimSpace(line)] = true
		}
	}
	return lines
}

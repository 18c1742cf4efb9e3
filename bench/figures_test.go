package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The figures in the pages agree with the results.
func TestPages_HaveTheFiguresOfTheResults(t *testing.T) {
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join("..", page))
		require.NoError(t, err)
		updated, err := withFigures(string(text), "results")
		require.NoError(t, err, page)
		require.Equal(t, updated, string(text), "%s differs from bench/results: run go run . -pages .. in bench", page)
		found += len(figures.FindAllString(string(text), -1))
	}
	require.Greater(t, found, 50, "the walk has missed the figures")
}

// A template replaces the table below it or the number before it, and fails if a name is unknown.
func TestFigures(t *testing.T) {
	page := "<!--{{table \"main\" \"stream\" \"p50, ms\"}}-->\n| old |\n\nA group has ?<!--{{median \"main\" \"stream\" \"group of 4 members, each event acked\"}}--> of 1.\n"
	made, err := withFigures(page, "results")
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`(?s)^<!--.*?-->\n\| p50, ms \| raw \| honker \|.*\| live, 100 subscribers .*\|\n\nA group has [0-9,]+<!--`), made)
	require.NotContains(t, made, "old")
	again, err := withFigures(made, "results")
	require.NoError(t, err)
	require.Equal(t, made, again)

	for _, wrong := range []string{
		`1<!--{{median "gone" "stream" "x"}}-->`, `1<!--{{median "main" "stream" "x"}}-->`, `1<!--{{median "main" "stream" "live, 1 subscribers" "River"}}-->`,
		`many<!--{{median "main" "stream" "live, 1 subscribers"}}-->`, "<!--{{table \"main\" \"stream\" \"x\"}}-->\n", `1<!--{{nothing}}-->`,
	} {
		_, err := withFigures(wrong, "results")
		require.Error(t, err, wrong)
	}
}

// The table of a run that has not been made yet is empty, and its numbers are question marks.
func TestFigures_NotMeasured(t *testing.T) {
	page := "<!--{{if measured \"gone\"}}{{table \"gone\" \"stream\" \"p50, ms\"}}{{end}}-->\n\nAbout ?<!--{{if measured \"gone\"}}{{median \"gone\" \"stream\" \"x\"}}{{else}}?{{end}}-->.\n"
	made, err := withFigures(page, "results")
	require.NoError(t, err)
	require.Equal(t, page, made)
	made, err = withFigures("<!--{{if measured \"main\"}}{{table \"main\" \"stream\" \"p50, ms\"}}{{end}}-->\n", "results")
	require.NoError(t, err)
	require.Contains(t, made, "| live, 100 subscribers ")
}

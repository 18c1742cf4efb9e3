package compat_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// step is a statement of a script with its expected result, or a wait.
type step struct {
	line  int
	query string
	rows  []string // lines "--= "
	fault string   // line "--! "
	wait  int      // line "--wait ", in seconds
}

// script parses a file of testdata/sqlfunc. Each statement ends with ";" at the end of a line and
// is followed by its rows, with "|" between columns.
func script(t *testing.T, path string) []step {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var steps []step
	query := ""
	for i, line := range strings.Split(string(text), "\n") {
		last := len(steps) - 1
		if rest, ok := strings.CutPrefix(line, "--= "); ok {
			steps[last].rows = append(steps[last].rows, rest)
		} else if rest, ok := strings.CutPrefix(line, "--! "); ok {
			steps[last].fault = rest
		} else if rest, ok := strings.CutPrefix(line, "--wait "); ok {
			seconds, err := strconv.Atoi(rest)
			require.NoError(t, err)
			steps = append(steps, step{wait: seconds})
		} else if !strings.HasPrefix(line, "--") {
			query += line + "\n"
			if strings.HasSuffix(line, ";") {
				steps = append(steps, step{line: i + 1, query: strings.TrimRight(query, ";\n")})
				query = ""
			}
		}
	}
	require.Empty(t, strings.TrimSpace(query), "a statement without an end")
	return steps
}

func (s step) run(t *testing.T, q testkit.Querier) {
	t.Helper()
	if s.query == "" {
		return
	}
	got, err := testkit.Rows(q, s.query)
	if s.fault != "" {
		require.ErrorContains(t, err, s.fault, "line %d: %s", s.line, s.query)
		return
	}
	require.NoError(t, err, "line %d: %s", s.line, s.query)
	require.Equal(t, s.rows, got, "line %d: %s", s.line, s.query)
}

// TestSQL_AsHonker checks that the SQL functions behave as honker's documentation describes.
func TestSQL_AsHonker(t *testing.T) {
	paths, err := filepath.Glob("testdata/sqlfunc/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		for how, play := range map[string]func(*testing.T, *sql.DB, []step){
			"by themselves":    playAlone,
			"in a transaction": playInTx,
			"rolled back":      playTwice,
		} {
			t.Run(filepath.Base(path)+" "+how, func(t *testing.T) {
				steps := script(t, path)
				inFakeTime(t, func(t *testing.T, db *honker.DB) { play(t, db.SQL(), steps) })
			})
		}
	}
}

// inFakeTime runs body in a bubble that starts at 2000-01-01. Only waits advance the clock.
func inFakeTime(t *testing.T, body func(*testing.T, *honker.DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		body(t, honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour}))
	})
}

func playAlone(t *testing.T, pool *sql.DB, steps []step) {
	for _, s := range steps {
		time.Sleep(time.Duration(s.wait) * time.Second)
		s.run(t, pool)
	}
}

func playInTx(t *testing.T, pool *sql.DB, steps []step) {
	tx, err := pool.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	for _, s := range steps {
		time.Sleep(time.Duration(s.wait) * time.Second)
		s.run(t, tx)
	}
	require.NoError(t, tx.Commit())
}

// playTwice runs each step first in a transaction that is rolled back, which must change nothing,
// and then for good.
func playTwice(t *testing.T, pool *sql.DB, steps []step) {
	for _, s := range steps {
		time.Sleep(time.Duration(s.wait) * time.Second)
		before := testkit.Dump(t, pool)
		tx, err := pool.Begin()
		require.NoError(t, err)
		s.run(t, tx)
		require.NoError(t, tx.Rollback())
		require.Equal(t, before, testkit.Dump(t, pool), "line %d: %s", s.line, s.query)
		s.run(t, pool)
		if s.fault != "" {
			require.Equal(t, before, testkit.Dump(t, pool), "line %d: %s", s.line, s.query)
		}
	}
}

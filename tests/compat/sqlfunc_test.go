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

// step of a script: a statement and what is expected of it, or a wait.
type step struct {
	line  int
	query string
	rows  []string // --=
	fault string   // --!
	wait  int      // --wait, in seconds
}

// script reads testdata/sqlfunc: statements that end a line with ";", each followed by
// its rows, the columns divided by "|".
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

// The SQL functions do what honker's do.
// The expected rows are those of honker's functions, by its description.
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

// inFakeTime runs body at 2000-01-01, which only waits move.
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

// playTwice rolls each step back before it stays.
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

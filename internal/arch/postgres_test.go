package arch_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pgLevels lists the packages of module honkerpg from top to bottom. A package may import those below it. The stores
// of nouns are at a level of their own, where the packages in pgShared may be imported.
var pgLevels = []string{"honkerpg", "honkerpg/internal/pgbackend", "honkerpg/internal/pgstore", pgNouns, "honkerpg/internal/pgstore/pgsql"}

// pgNouns stands for the packages of nouns below pgstore.
const pgNouns = "honkerpg/internal/pgstore/*"

// pgShared are the packages of nouns that other nouns use: groups read streams, and lists read jobs.
var pgShared = map[string]bool{"jobs": true, "streams": true}

// pgLevel returns the level of a package, or -1 for the others.
func pgLevel(dir string) int {
	if noun, ok := strings.CutPrefix(dir, pgStore); ok && noun != "pgsql" && !strings.Contains(noun, "/") {
		dir = pgNouns
	}
	return slices.Index(pgLevels, dir)
}

// pgFaults returns the imports that point upwards within module honkerpg, and the uses of a clock by its stores.
func pgFaults(s source) (faults []string) {
	from := pgLevel(path.Dir(s.path))
	if from < 0 || s.test {
		return nil
	}
	for _, p := range s.imports() {
		dir, ours := strings.CutPrefix(p, module+"/")
		to := pgLevel(dir)
		switch {
		case p == module && from > 0:
			faults = append(faults, "imports the root package")
		case !ours || to < 0 || to > from:
		case to == from && pgLevels[to] == pgNouns && pgShared[path.Base(dir)]:
		default:
			faults = append(faults, "imports "+p)
		}
	}
	if !strings.HasPrefix(s.path, pgStore) {
		return faults
	}
	faults = append(faults, s.uses(goClock, nil)...)
	for _, text := range s.texts() {
		if pgClock.MatchString(text) && text != "SELECT clock_timestamp()" {
			faults = append(faults, "asks the server for the time: "+text)
		}
	}
	return faults
}

// pgClock matches the functions of PostgreSQL that return the time. Statements get the time as a parameter, so that
// tests choose it and all statements of a transaction agree.
var pgClock = regexp.MustCompile(`(?i)\b(now|clock_timestamp|statement_timestamp|transaction_timestamp)\(\)|\b(current|local)_?(timestamp|time|date)\b`)

// pgClockFree lists the files of migrations that may ask for the time: the triggers of packages dispatch and flow, which no
// verb calls, and the registrations of waiting processes and the intervals of looks, which only concern the server.
var pgClockFree = []string{"marks.sql", "runs.sql", "sent.sql", "surface.sql", "wakes.sql"}

// The tables and functions of the schema get the time from the verbs.
func TestPostgres_MigrationsHaveNoClock(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, pgStore, "migrations", "*", "*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		asks := pgClock.MatchString(withoutComments(string(text)))
		require.Equal(t, slices.Contains(pgClockFree, filepath.Base(file)), asks, file)
	}
	require.True(t, pgClock.MatchString("DEFAULT now()"))
	require.False(t, pgClock.MatchString("place.now, honker.now_(x)"))
}

// withoutComments returns the statements of a text.
func withoutComments(text string) string {
	return regexp.MustCompile(`--[^\n]*`).ReplaceAllString(text, "")
}

//go:build unix

package honkerpg_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/pgcluster"
)

// atEnd runs statements at the end of the test, as the owner of the server.
func atEnd(t *testing.T, statements string) {
	t.Helper()
	dsn := pgtest.DSN(t)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), dsn)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), statements)
		require.NoError(t, err)
	})
}

// database creates a database of the test's server with honker's schema, and returns its connection string.
func database(t *testing.T) string {
	t.Helper()
	config, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	name := "honker_test_" + strings.ToLower(rand.Text())
	admin(t, `CREATE DATABASE `+name)
	atEnd(t, `DROP DATABASE `+name+` WITH (FORCE)`)
	quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace
	dsn := fmt.Sprintf("host='%s' port=%d user='%s' dbname=%s", quoted(config.Host), config.Port, quoted(config.User), name)
	if config.Password != "" {
		dsn += fmt.Sprintf(" password='%s'", quoted(config.Password))
	}
	db, err := honkerpg.Open(t.Context(), dsn, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return dsn
}

// block is a code block of a page.
type block struct {
	language, text string
	line           int
}

// blocks returns the code blocks of a page.
func blocks(t *testing.T, page string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(page))
	require.NoError(t, err)
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		switch language, fence := strings.CutPrefix(line, "```"); {
		case fence && inside:
			inside = false
		case fence:
			inside, all = true, append(all, block{language: language, line: i + 1})
		case inside:
			all[len(all)-1].text += line + "\n"
		}
	}
	require.False(t, inside)
	return all
}

// pageOfFunctions is the page of the functions for other languages.
const pageOfFunctions = "../docs/sql-postgres.md"

// The blocks of the page, run by psql one after the other, print what the page says. Between them, a process of the
// library has worked.
func TestSQL_Page(t *testing.T) {
	atEnd(t, `DROP ROLE IF EXISTS mailer`) // after the database, which needs the role
	dsn := database(t)
	psql, err := pgcluster.Program("psql")
	require.NoError(t, err)
	run := func(statements string) string {
		command := exec.CommandContext(t.Context(), psql, "-X", "-q", "-v", "VERBOSITY=terse", "-d", dsn)
		command.Stdin = strings.NewReader(statements)
		out, err := command.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	all, ran := blocks(t, pageOfFunctions), 0
	for i, b := range all {
		if b.language != "sql" {
			continue
		}
		wanted := ""
		if i+1 < len(all) && all[i+1].language == "text" {
			wanted = all[i+1].text
		}
		out := run(b.text)
		if wanted == "" {
			require.NotContains(t, out, "ERROR", "the block at line %d", b.line)
		} else {
			require.Equal(t, strings.TrimSpace(wanted), strings.TrimSpace(out), "the block at line %d", b.line)
		}
		run(`SELECT honker.catch_up();`)
		ran++
	}
	require.Greater(t, ran, 5)
}

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeCommand {
		main()
	}
	goleak.VerifyTestMain(m)
}

// After a run with kills, the books balance. A second run on the same directory continues where the
// first ended.
func TestBridge_Run(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := runMain(t, 0, "-dir", dir, "-orders", "120", "-rate", "200", "-kills", "4")
	require.Regexp(t, `120 ordered, 120 received, \d+ repeated without effect +ok`, out)
	require.Regexp(t, `120 packed +ok`, out)
	require.Contains(t, out, "kill shop")
	require.Contains(t, out, "kill warehouse")
	require.FileExists(t, pathOf(dir, shopNode))
	again := runMain(t, 0, "-dir", dir, "-orders", "150", "-rate", "0", "-kills", "0")
	require.Regexp(t, `150 ordered, 150 received, \d+ repeated without effect +ok`, again)
}

// Each kind of mismatch between the two databases is reported.
func TestBridge_WrongBooks(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string][]string{
		"":                                     nil,
		"each order has arrived once, but: 2":  {`INSERT INTO received (id, customer, number, cents) VALUES (2, 'blau', 2, 0)`},
		"each order was packed once, but: 1":   {`DELETE FROM packed WHERE id = 2`},
		"each order was packed once, but: 2":   {`UPDATE packed SET id = 1`},
		"the order of each customer, but: 1":   {`UPDATE received SET number = 2 WHERE id = 1`},
		"the sums are the same, but: 3.00 and": {`UPDATE received SET cents = 1`},
	} {
		b, err := open(t.Context(), config{dir: t.TempDir()}, "", io.Discard)
		require.NoError(t, err)
		exec := func(statements ...string) {
			for _, s := range statements {
				db := b.warehouse
				if s[:7] == "INSERT " && s[12:18] == "orders" {
					db = b.shop
				}
				_, err := db.SQL().ExecContext(t.Context(), s)
				require.NoError(t, err)
			}
		}
		exec(`INSERT INTO orders VALUES (1, 'acme', 1, 100), (2, 'blau', 1, 200)`, `INSERT INTO packed VALUES (1), (2)`,
			`INSERT INTO received (id, customer, number, cents) VALUES (1, 'acme', 1, 100), (2, 'blau', 1, 200)`)
		exec(spoil...)
		books, err := b.readBooks(t.Context())
		require.NoError(t, err)
		err = books.print(io.Discard)
		if says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
		}
		require.NoError(t, b.close())
	}
}

// A node that exits on its own stops the run with an error.
func TestBridge_NodeDies(t *testing.T) {
	t.Parallel()
	b, err := open(t.Context(), config{dir: t.TempDir(), orders: 1, lease: time.Second}, filepath.Join(t.TempDir(), "no", "such", "socket"), io.Discard)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.close()) }()
	err = b.run(t.Context())
	require.ErrorIs(t, err, errEnded)
	require.ErrorContains(t, err, warehouseNode)
}

// Invalid flags are rejected with exit code 2.
func TestBridge_Flags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-orders", "0"}, {"-rate", "-1"}, {"-kills", "-1"}, {"-lease", "1ms"}, {"-nonsense"}} {
		require.Empty(t, runMain(t, 2, args...), "%v", args)
	}
	require.Equal(t, 2, runNode(t.Context(), []string{"-name", "other"}, &bytes.Buffer{}, io.Discard))
}

// runMain calls run in this process, which starts its nodes as child processes. It returns stdout.
func runMain(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, code, run(t.Context(), args, &stdout, &stderr), "%s%s", &stdout, &stderr)
	if code == 0 {
		fmt.Fprint(t.Output(), stdout.String())
	}
	return stdout.String()
}

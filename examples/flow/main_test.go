package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker"
)

// childEnv makes the test binary run as the program.
const childEnv = "FLOW_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

const wantOutput = `order-1: parcel of order-1
order-2: parcel of order-2
order-3: undone: order-3 was refused
order-4: undone: `

// The program is killed at several moments. Started again it goes on, and each effect happens once.
func TestFlow_Kill(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "flow.db")
	for _, after := range []time.Duration{300 * time.Millisecond, time.Second, 2500 * time.Millisecond} {
		child := start(t, db)
		time.Sleep(after)
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
	}
	child := start(t, db)
	require.NoError(t, child.Wait())
	out := child.Stdout.(*bytes.Buffer).String()
	require.True(t, strings.HasPrefix(out, wantOutput), out)
	require.Contains(t, out, "the vase of order-4 has broken")
	check(t, db)

	var again bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-db", db, "-approval", "0s"}, &again, t.Output()))
	require.Equal(t, out, again.String(), "a later run finds the orders as they ended")
	check(t, db)
}

// start starts the program.
func start(t *testing.T, db string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0], "-db", db, "-approval", "500ms", "-pack", "2s", "-lease", "1s")
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stdout, child.Stderr = new(bytes.Buffer), t.Output()
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		if child.ProcessState == nil { // the test has failed before Wait
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	})
	return child
}

// check checks the stock, the parcels and the bank.
func check(t *testing.T, path string) {
	t.Helper()
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer db.Close()
	for query, want := range map[string]string{
		`SELECT group_concat(item || ' ' || n, ', ') FROM (SELECT * FROM stock ORDER BY item)`: "desk 8, sofa 9, tea 8, vase 9",
		`SELECT group_concat(parcel, ', ') FROM (SELECT * FROM parcels ORDER BY parcel)`:       "parcel of order-1, parcel of order-2",
	} {
		var got sql.NullString
		require.NoError(t, db.SQL().QueryRow(query).Scan(&got))
		require.Equal(t, want, got.String)
	}
	b := bank{path: path + ".bank"}
	lines, err := b.lines()
	require.NoError(t, err)
	charges, refunds := 0, 0
	for _, l := range lines {
		switch {
		case strings.HasPrefix(l, "charge "):
			charges++
		case strings.HasPrefix(l, "refund "):
			refunds++
		}
	}
	require.Equal(t, []int{4, 2}, []int{charges, refunds})
}

// Invalid flags are refused with exit code 2.
func TestFlow_Flags(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2, run(t.Context(), []string{"-nonsense"}, t.Output(), t.Output()))
}

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// following is a running command that ends when it is interrupted.
type following struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs *bufio.Reader
}

// follow starts a command and waits for its start message.
func follow(t *testing.T, dir, begun string, args ...string) *following {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("os.Interrupt cannot be sent")
	}
	return followBy(t, command(t, dir, args...), begun)
}

// followBy starts cmd and waits for its start message.
func followBy(t *testing.T, cmd *exec.Cmd, begun string) *following {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	f := &following{t, cmd, bufio.NewReader(out), bufio.NewReader(errs)}
	line, err := f.errs.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, begun+"\n", line)
	return f
}

func (f *following) line() string {
	f.t.Helper()
	line, err := f.out.ReadString('\n')
	require.NoError(f.t, err)
	return strings.TrimSpace(line)
}

// interrupt interrupts the command, which must end without an error.
func (f *following) interrupt() {
	f.t.Helper()
	require.NoError(f.t, f.cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(f.errs)
	require.NoError(f.t, err)
	_, _ = io.Copy(io.Discard, f.out)
	require.Zero(f.t, codeOf(f.t, f.cmd.Wait()), string(rest))
	require.Empty(f.t, string(rest))
}

// Messages from any process are printed as they arrive.
func TestListen_Messages(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	f := follow(t, dir, "listening", "listen", "cache", "mail", "-o", "jsonl")
	_, err := db.Notify(t.Context(), "others", 0)
	require.NoError(t, err)
	_, err = db.Notify(t.Context(), "cache", map[string]int{"drop": 7})
	require.NoError(t, err)
	require.Contains(t, f.line(), `"channel":"cache"`)
	require.Zero(t, ran(t, dir, "notify", "mail", `"hello"`).code)
	require.Contains(t, f.line(), `"payload":"hello"`)
	f.interrupt()

	few := follow(t, dir, "listening", "listen", "cache", "--limit", "1", "-o", "name")
	_, err = db.Notify(t.Context(), "cache", 2)
	require.NoError(t, err)
	require.Equal(t, "4", few.line())
	_, _ = io.Copy(io.Discard, few.errs)
	require.Zero(t, codeOf(t, few.cmd.Wait()))
}

// For each commit, only the objects it changed are printed.
func TestEvents_Commits(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	_, err := honker.NewQueue[int](db, "quiet", nil).Enqueue(t.Context(), 1)
	require.NoError(t, err)
	f := follow(t, dir, "following", "events", "-o", "jsonl")
	next := func() (h struct {
		Kind, Name string
		Queue      *struct{ Ready int }
		Stream     *struct{ Events int }
		Lock       *struct{ Owner string }
	}) {
		require.NoError(t, json.Unmarshal([]byte(f.line()), &h))
		return h
	}
	_, err = q.EnqueueMany(t.Context(), []int{1, 2})
	require.NoError(t, err)
	h := next()
	require.Equal(t, "queue", h.Kind)
	require.Equal(t, "jobs", h.Name)
	require.Equal(t, 2, h.Queue.Ready)
	_, err = honker.NewStream[int](db, "orders", nil).Publish(t.Context(), 1)
	require.NoError(t, err)
	h = next()
	require.Equal(t, "orders", h.Name)
	require.Equal(t, 1, h.Stream.Events)
	lock, err := db.TryLock(t.Context(), "deploy", &honker.LockOptions{Owner: "ann"})
	require.NoError(t, err)
	h = next()
	require.Equal(t, "ann", h.Lock.Owner)
	require.NoError(t, lock.Unlock(t.Context()))
	h = next()
	require.Equal(t, "deploy", h.Name)
	require.Nil(t, h.Lock)
	f.interrupt()
}

// A waiting command keeps waiting when another process starts to use an idle file.
func TestFollow_IdleFile(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	path := filepath.Join(dir, "app.db")
	require.NoError(t, db.Close())
	f := follow(t, dir, "listening", "listen", "cache", "-o", "name")
	again, err := honker.Open(t.Context(), path, nil)
	require.NoError(t, err)
	id, err := again.Notify(t.Context(), "cache", 1)
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(id, 10), f.line())
	require.NoError(t, again.Close())
	f.interrupt()
	require.NoFileExists(t, path+"-wal")
}

package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["historian"] = makeHistory }

// act is a call as observed by its caller.
type act struct {
	Key      string
	Verb     string
	Who      int
	In, Out  int64
	OK       bool
	Unknown  bool // the call was given up: it may have happened, or may happen later
	From, To int64
}

// monotonic returns the system's monotonic clock, which all processes share.
func monotonic() int64 {
	var ts syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// historian makes random calls and records them.
type historian struct {
	db   *honker.DB
	who  int
	luck *rand.Rand
	acts []act
}

func (h *historian) note(a act, do func(*act)) {
	a.Who, a.From = h.who, monotonic()
	do(&a)
	a.To = monotonic()
	h.acts = append(h.acts, a)
}

// lock takes a lock and releases it if it was free.
func (h *historian) lock() {
	name := fmt.Sprint("lock", h.luck.IntN(3))
	var l *honker.Lock
	h.note(act{Key: name, Verb: "lock"}, func(a *act) {
		var err error
		l, err = h.db.TryLock(context.Background(), name, nil)
		if a.OK = err == nil; !a.OK && !errors.Is(err, honker.ErrLockHeld) {
			testkit.Must(err)
		}
	})
	if l == nil {
		return
	}
	time.Sleep(time.Duration(h.luck.IntN(500)) * time.Microsecond)
	h.note(act{Key: name, Verb: "unlock"}, func(a *act) { testkit.Must(l.Unlock(context.Background())) })
}

// save reads or saves an offset. Some calls are given up.
func (h *historian) save() {
	name := fmt.Sprint("consumer", h.luck.IntN(3))
	s := honker.NewStream[int](h.db, "s", nil)
	if h.luck.IntN(2) == 0 {
		h.note(act{Key: name, Verb: "offset"}, func(a *act) {
			var err error
			a.Out, err = s.Offset(context.Background(), name)
			testkit.Must(err)
		})
		return
	}
	h.note(act{Key: name, Verb: "save", In: int64(1 + h.luck.IntN(1_000_000))}, func(a *act) {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if h.luck.IntN(20) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(h.luck.IntN(200))*time.Microsecond)
		}
		defer cancel()
		var err error
		a.OK, err = s.SaveOffset(ctx, name, a.In)
		if a.Unknown = err != nil && ctx.Err() != nil; !a.Unknown {
			testkit.Must(err)
		}
	})
}

// take claims a job.
func (h *historian) take() {
	h.note(act{Key: "queue", Verb: "take"}, func(a *act) {
		jobs, err := honker.NewQueue[int64](h.db, "jobs", nil).Claim(context.Background(), fmt.Sprint(h.who), 1)
		testkit.Must(err)
		if len(jobs) > 0 {
			a.Out = jobs[0].Args
		}
	})
}

// makeHistory makes random calls in four goroutines and prints the recorded history.
func makeHistory() {
	a, db := testkit.OpenChild(nil)
	testkit.Say("ready")
	testkit.ReadLine()
	var all sync.WaitGroup
	var mu sync.Mutex
	var acts []act
	for g := range 4 {
		h := &historian{db: db, who: 4*int(a.Span) + g, luck: testkit.Rand(a.Seed, 4*uint64(a.Span)+uint64(g))}
		all.Go(func() {
			for range a.Jobs {
				[]func(){h.lock, h.save, h.take}[h.luck.IntN(3)]()
			}
			mu.Lock()
			acts = append(acts, h.acts...)
			mu.Unlock()
		})
	}
	all.Wait()
	text, err := json.Marshal(acts)
	testkit.Must(err)
	testkit.Must(os.WriteFile(a.Ledger, text, 0o600))
	testkit.Must(db.Close())
}

// sequential models the calls in a sequential history: a lock has at most a single holder, an
// offset never decreases, and jobs are claimed in order.
var sequential = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(act).Key
			parts[key] = append(parts[key], o)
		}
		var out [][]porcupine.Operation
		for _, p := range parts {
			out = append(out, p)
		}
		return out
	},
	Init: func() any { return int64(-1) },
	Step: func(state, input, _ any) (bool, any) {
		is, a := state.(int64), input.(act)
		switch a.Verb {
		case "lock":
			if !a.OK {
				return is >= 0, is
			}
			return is < 0, int64(a.Who)
		case "unlock":
			return is == int64(a.Who), int64(-1)
		case "offset":
			return a.Out == max(is, 0), is
		case "save":
			return a.Unknown || a.OK == (a.In > is), max(is, a.In)
		}
		if a.Out == 0 {
			return is == jobsToTake, is
		}
		return a.Out == max(is, 0)+1, a.Out
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

const jobsToTake = 600

// The calls of two processes on locks, offsets and jobs are linearizable.
func TestProcess_Linearizable(t *testing.T) {
	each := 1500
	if testing.Short() {
		each = 200
	}
	path, db := testkit.OpenShared(t)
	seed := testkit.Seed(t)
	args := make([]int64, jobsToTake)
	for i := range args {
		args[i] = int64(i) + 1
	}
	_, err := honker.NewQueue[int64](db, "jobs", nil).EnqueueMany(context.Background(), args)
	require.NoError(t, err)
	var writers []*testkit.Child
	for i := range 2 {
		a := testkit.Task{Path: path, Jobs: each, Seed: seed, Span: time.Duration(i), Ledger: fmt.Sprint(path, ".history", i)}
		p := testkit.StartChild(t, "historian", a)
		require.Equal(t, "ready", p.Line(testkit.Timeout))
		writers = append(writers, p)
	}
	for _, p := range writers {
		p.Tell("go")
	}
	var history []porcupine.Operation
	for i, p := range writers {
		require.Empty(t, p.End())
		text, err := os.ReadFile(fmt.Sprint(path, ".history", i))
		require.NoError(t, err)
		var acts []act
		require.NoError(t, json.Unmarshal(text, &acts))
		for _, a := range acts {
			if a.Unknown {
				a.To = math.MaxInt64
			}
			history = append(history, porcupine.Operation{ClientId: a.Who, Input: a, Call: a.From, Return: a.To})
		}
	}
	verdict, info := porcupine.CheckOperationsVerbose(sequential, history, testkit.Timeout)
	if verdict == porcupine.Illegal {
		kept := path + ".history.html" // next to the database, so that it is kept with it
		require.NoError(t, porcupine.VisualizePath(sequential, info, kept))
		t.Fatalf("not linearizable: see %s", filepath.Base(kept))
	}
	require.Equal(t, porcupine.Ok, verdict)
	t.Logf("%d operations", len(history))
}

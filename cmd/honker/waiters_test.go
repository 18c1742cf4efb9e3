package main

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// phaseOf returns the phase of a job, or "" if it was deleted.
func phaseOf(t *testing.T, db *honker.DB, id int64) honker.Phase {
	t.Helper()
	job, err := db.Job(t.Context(), id)
	if errors.Is(err, honker.ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	return job.Phase
}

// A job with waiters is cancelled only if the command specifies how to treat them. Otherwise nothing changes.
func TestJobCancel_Waiters(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	p := person{t: t, env: map[string]string{fileVariable: filepath.Join(dir, "app.db")}}
	enqueue := func(opts ...honker.EnqueueOption) int64 {
		id, err := q.Enqueue(t.Context(), 1, opts...)
		require.NoError(t, err)
		return id
	}
	for how, want := range map[string]struct {
		code             int
		cancelled, waits honker.Phase
	}{
		"":          {codeRefused, honker.PhaseReady, honker.PhaseHeld},
		"maybe":     {codeUsage, honker.PhaseReady, honker.PhaseHeld},
		"keep":      {codeNo, honker.PhaseReady, honker.PhaseHeld},
		"drop":      {codeFine, "", ""},
		"release":   {codeFine, "", honker.PhaseReady},
		"drop, dry": {codeWouldChange, honker.PhaseReady, honker.PhaseHeld},
	} {
		first := enqueue()
		waits := enqueue(honker.After(first))
		args := []string{"job", "cancel", strconv.FormatInt(first, 10), "--yes", "--columns", "matched,changed,skipped,waiters", "-q"}
		word, dry, _ := strings.Cut(how, ", ")
		if word != "" {
			args = append(args, "--waiters", word)
		}
		if dry != "" {
			args = append(args, "--dry-run")
		}
		got := p.run(args...)
		require.Equal(t, want.code, got.code, "%s: %s", how, got.err)
		require.Equal(t, want.cancelled, phaseOf(t, db, first), how)
		require.Equal(t, want.waits, phaseOf(t, db, waits), how)
		switch how {
		case "":
			require.Equal(t, "job "+strconv.FormatInt(waits, 10)+" waits for these, and would run as if these were done\n"+
				"try: the same with --waiters drop, release or keep\n", got.err)
		case "drop":
			require.Equal(t, "1\t1\t0\t1\n", got.out)
		case "drop, dry":
			require.Equal(t, "1\t0\t0\t1\n", got.out)
		case "keep":
			require.Equal(t, "1\t0\t1\t0\n", got.out)
		}
	}
	one := enqueue()
	two := enqueue(honker.After(one))
	got := p.run("job", "cancel", "--yes", strconv.FormatInt(one, 10), strconv.FormatInt(two, 10))
	require.Zero(t, got.code, "%s: no other job waits", got.err)
	got = p.run("job", "cancel", strconv.FormatInt(enqueue(), 10))
	require.Zero(t, got.code, got.err)
}

// Cancelling a batch does not release its waiters as if its members were done. The waiters are cancelled with the
// batch.
func TestBatchCancel(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	p := person{t: t, env: map[string]string{fileVariable: filepath.Join(dir, "app.db")}}
	batch, err := db.NewBatch(t.Context(), nil)
	require.NoError(t, err)
	_, err = q.EnqueueMany(t.Context(), []int{1, 2, 3}, honker.InBatch(batch.ID))
	require.NoError(t, err)
	stitch, err := q.Enqueue(t.Context(), 4, honker.AfterBatch(batch.ID))
	require.NoError(t, err)
	require.NoError(t, batch.Seal(t.Context()))
	claimed, err := q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)

	members := strings.Fields(p.run("jobs", "--batch", "1", "-o", "name").out)
	require.Len(t, members, 3)
	got := p.run(append([]string{"job", "cancel", "--running", "--yes"}, members...)...)
	require.Equal(t, codeRefused, got.code, got.err)
	require.Contains(t, got.err, "job "+strconv.FormatInt(stitch, 10)+" waits for these")

	require.Equal(t, codeNo, p.run("batch", "cancel", "99", "--yes").code)
	require.Equal(t, codeUsage, p.run("batch", "cancel", "one").code)
	require.Equal(t, codeUsage, p.run("batch", "cancel", "1", "--running").code, "no terminal to ask on")
	got = p.run("batch", "cancel", "1", "--yes")
	require.Equal(t, codeRefused, got.code)
	require.Equal(t, "1 job of batch 1 runs now\ntry: the same with --running\n", got.err)
	got = p.run("batch", "cancel", "1", "--running", "--dry-run", "--columns", "matched,changed,waiters", "-q")
	require.Equal(t, said{out: "3\t0\t1\n", code: codeWouldChange}, got)
	require.Equal(t, honker.PhaseHeld, phaseOf(t, db, stitch))
	require.Equal(t, "3\n", p.run("batch", "show", "1", "--columns", "total", "-q").out)

	p.atTerm, p.stdin = true, "y\n"
	got = p.run("batch", "cancel", "1", "--running")
	require.Equal(t, said{out: "cancelled 3 jobs, and 1 that waits for them\n", err: "cancel 3 jobs, and 1 that waits for them? [y/N] "}, got)
	require.Empty(t, phaseOf(t, db, stitch))
	require.ErrorIs(t, claimed[0].Ack(t.Context()), honker.ErrClaimLost)
	got = p.run("batch", "cancel", "1", "--yes")
	require.Equal(t, codeNo, got.code, got.err)
	require.NoError(t, db.Check(t.Context()))
}

// A dead job with waiters is discarded only if the command specifies how to treat them.
func TestDeadDiscard_Waiters(t *testing.T) {
	t.Parallel()
	dir, db, q := newFile(t)
	p := person{t: t, env: map[string]string{fileVariable: filepath.Join(dir, "app.db")}}
	for how, want := range map[string]honker.Phase{"keep": honker.PhaseHeld, "drop": "", "release": honker.PhaseReady} {
		dead, err := q.Enqueue(t.Context(), 1, honker.Priority(1))
		require.NoError(t, err)
		waits, err := q.Enqueue(t.Context(), 2, honker.After(dead))
		require.NoError(t, err)
		jobs, err := q.Claim(t.Context(), "w", 1)
		require.NoError(t, err)
		require.NoError(t, jobs[0].Reject(t.Context(), errors.New("no")))
		got := p.run("dead", "discard", strconv.FormatInt(dead, 10))
		require.Equal(t, codeNo, got.code)
		require.Contains(t, got.err, "other jobs wait for it")
		require.Equal(t, codeUsage, p.run("dead", "discard", strconv.FormatInt(dead, 10), "--waiters", "x").code)
		require.Equal(t, honker.PhaseDead, phaseOf(t, db, dead))
		got = p.run("dead", "discard", strconv.FormatInt(dead, 10), "--waiters", how)
		require.Equal(t, how == "keep", got.code == codeNo, got.err)
		require.Equal(t, want, phaseOf(t, db, waits), how)
	}
}

package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

// DeadReport says of what the dead jobs have died.
type DeadReport struct {
	Groups []DeadGroup  // the most numerous first
	Looked honker.Count // jobs that were looked at; with More, there are older ones, which were not
}

// DeadGroup are dead jobs of one queue with errors of one kind.
type DeadGroup struct {
	Queue       string
	Fingerprint string // of the errors: their first line without numbers, quoted texts and addresses
	Sample      string // the error of the newest, whole
	N           int64
	First, Last time.Time // deaths
	IDs         []int64   // of the newest ten, the newest first
}

const (
	deadWindow = 10000
	groupIDs   = 10
)

// DeadGroups groups the dead jobs that f picks by queue and kind of error, among the newest 10,000 of
// them. The zero filter picks all. A verb with Fingerprint set acts on all that have it, beyond these.
// It reads all dead jobs and never waits for the writer; ctx bounds the wait for a connection.
func DeadGroups(ctx context.Context, db *honker.DB, f JobFilter) (*DeadReport, error) {
	e, noDB := engineOf(db)
	sel, err := f.selection(true)
	if err := errors.Join(noDB, engine.CheckContext(ctx), err, f.checkCodec(e)); err != nil {
		return nil, engine.Wrap("dead groups", "", err)
	}
	var newest []store.SelectedJob
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		newest, err = changes.NewestDead(ctx, q, sel, deadWindow+1)
		return err
	})
	if err != nil {
		return nil, engine.Wrap("dead groups", "", err)
	}
	r := &DeadReport{Looked: honker.Count{More: len(newest) > deadWindow}}
	newest = slices.DeleteFunc(newest[:min(len(newest), deadWindow)], func(j store.SelectedJob) bool { return !f.matches(j) })
	r.Looked.N = int64(len(newest))
	r.Groups = group(newest)
	return r, nil
}

// group groups jobs, which are in the order of their deaths, the newest first.
func group(newest []store.SelectedJob) []DeadGroup {
	type kind struct{ queue, fingerprint string }
	at := make(map[kind]int)
	groups := []DeadGroup{}
	for _, j := range newest {
		k := kind{j.Queue, fingerprint(j.LastError)}
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k] = i
			groups = append(groups, DeadGroup{Queue: k.queue, Fingerprint: k.fingerprint, Sample: j.LastError, Last: engine.Instant(j.DiedAt)})
		}
		g := &groups[i]
		g.N++
		g.First = engine.Instant(j.DiedAt)
		if len(g.IDs) < groupIDs {
			g.IDs = append(g.IDs, j.ID)
		}
	}
	slices.SortStableFunc(groups, func(a, b DeadGroup) int { return cmp.Compare(b.N, a.N) })
	return groups
}

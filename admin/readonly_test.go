package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// exportedFunctions returns the names of the package's exported functions that take a context.
func exportedFunctions(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() && len(f.Type.Params.List) > 0 && f.Type.Params.List[0].Names[0].Name == "ctx" {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// unlessNotFound returns err unless it is honker.ErrNotFound.
func unlessNotFound(err error) error {
	if errors.Is(err, honker.ErrNotFound) {
		return nil
	}
	return err
}

// On a read-only DB, functions that read succeed, and functions that may change something fail even if
// nothing would change. A new function must be added to the lists.
func TestReadOnly_Functions(t *testing.T) {
	path, writer := testkit.OpenShared(t)
	bury(t, honker.NewQueue[int](writer, "jobs", nil), 1, "no")
	db, err := honker.Open(t.Context(), path, &honker.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx := testkit.Context(t, testkit.Timeout)
	tx, err := db.SQL().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	defer tx.Rollback()
	none := admin.JobFilter{Queues: []string{"none"}}
	writes := map[string]func(ctx context.Context) error{
		"BreakLock":     func(c context.Context) error { _, err := admin.BreakLock(c, db, "l", "o"); return err },
		"BreakPresence": func(c context.Context) error { _, err := admin.BreakPresence(c, db, "k", "o"); return err },
		"BreakRelayPartition": func(c context.Context) error {
			_, err := admin.BreakRelayPartition(c, db, admin.RelayPartition{Queue: "q"})
			return err
		},
		"DiscardRelayDead": func(c context.Context) error { _, err := admin.DiscardRelayDead(c, db, "", "q", 1); return err },
		"RequeueRelayDead": func(c context.Context) error { _, err := admin.RequeueRelayDead(c, db, "", "q", 1); return err },
		"PauseActors": func(c context.Context) error {
			_, err := admin.PauseActors(c, db, admin.ActorTarget{Type: "t"})
			return err
		},
		"ResumeActors": func(c context.Context) error {
			_, err := admin.ResumeActors(c, db, admin.ActorTarget{Type: "t"})
			return err
		},
		"StopActors": func(c context.Context) error {
			_, err := admin.StopActors(c, db, admin.ActorTarget{Type: "t"})
			return err
		},
		"Bury":       func(c context.Context) error { _, err := admin.Bury(c, db, none, nil); return err },
		"Cancel":     func(c context.Context) error { _, err := admin.Cancel(c, db, none, nil); return err },
		"Discard":    func(c context.Context) error { _, err := admin.Discard(c, db, none, nil); return err },
		"Enqueue":    func(c context.Context) error { _, err := admin.Enqueue(c, db, "jobs", 1); return err },
		"ImportJobs": func(c context.Context) error { return importWith(c, db, admin.ImportOptions{}) },
		"Requeue":    func(c context.Context) error { _, err := admin.Requeue(c, db, none, nil); return err },
		"Vacuum":     func(c context.Context) error { return admin.Vacuum(c, db) },
		"RequeueTx":  func(c context.Context) error { _, err := admin.RequeueTx(c, db, tx, none, nil); return err },
		"RunNow":     func(c context.Context) error { _, err := admin.RunNow(c, db, none, nil); return err },
	}
	reads := map[string]func(ctx context.Context) error{
		"Dependencies":    func(c context.Context) error { _, err := admin.Dependencies(c, db, 1, 2); return err },
		"Presences":       func(c context.Context) error { _, err := admin.Presences(c, db); return err },
		"RelayPartitions": func(c context.Context) error { _, err := admin.RelayPartitions(c, db); return err },
		"Actors":          func(c context.Context) error { _, err := admin.Actors(c, db); return err },
		"EachRelayDead": func(c context.Context) error {
			return unlessNotFound(testkit.LastError(admin.EachRelayDead(c, db, admin.RelayDeadFilter{Queue: "q"})))
		},
		"Relays":    func(c context.Context) error { _, err := admin.Relays(c, db); return err },
		"Schedules": func(c context.Context) error { _, err := admin.Schedules(c, db); return err },
		"Sizes":     func(c context.Context) error { _, err := admin.Sizes(c, db); return err },
		"UsualRun":  func(c context.Context) error { _, _, err := admin.UsualRun(c, db, "jobs"); return err },
		"PreviewRetention": func(c context.Context) error {
			_, err := admin.PreviewRetention(c, db, "topic", honker.Retention{MaxCount: 1})
			return err
		},
		"Attempts":   func(c context.Context) error { _, err := admin.Attempts(c, db, 1); return err },
		"Audit":      func(c context.Context) error { _, err := admin.Audit(c, db, nil); return err },
		"Backup":     func(c context.Context) error { return admin.Backup(c, db, filepath.Join(t.TempDir(), "copy.db")) },
		"Batch":      func(c context.Context) error { _, err := admin.Batch(c, db, 1); return unlessNotFound(err) },
		"Batches":    func(c context.Context) error { _, err := admin.Batches(c, db, nil); return err },
		"CountJobs":  func(c context.Context) error { _, err := admin.CountJobs(c, db, admin.JobFilter{}, 9); return err },
		"Database":   func(c context.Context) error { _, err := admin.Database(c, db); return err },
		"DeadGroups": func(c context.Context) error { _, err := admin.DeadGroups(c, db, admin.JobFilter{}); return err },
		"RetryGroups": func(c context.Context) error {
			_, err := admin.RetryGroups(c, db, admin.JobFilter{}, 1, 0)
			return err
		},
		"DeadGroupsWithin": func(c context.Context) error {
			_, err := admin.DeadGroupsWithin(c, db, admin.JobFilter{}, 1, 0)
			return err
		},
		"EachJob": func(c context.Context) error { return testkit.LastError(admin.EachJob(c, db, admin.JobFilter{}, nil)) },
		"Explain": func(c context.Context) error {
			_, err := admin.Explain(c, db, 1)
			return err
		},
		"ExplainQueue": func(c context.Context) error {
			_, err := admin.ExplainQueue(c, db, "jobs")
			return err
		},
		"ExportJobs": func(c context.Context) error {
			_, err := admin.ExportJobs(c, db, admin.JobFilter{}, io.Discard)
			return err
		},
		"File":          func(c context.Context) error { _, err := admin.File(c, db); return err },
		"Leaders":       func(c context.Context) error { _, err := admin.Leaders(c, db); return err },
		"LimitedQueues": func(c context.Context) error { _, err := admin.LimitedQueues(c, db); return err },
		"QueueReport":   func(c context.Context) error { _, err := admin.QueueReport(c, db, "jobs", nil); return err },
		"ListJobs":      func(c context.Context) error { _, err := admin.ListJobs(c, db, admin.JobFilter{}, nil); return err },
		"Locks":         func(c context.Context) error { _, err := admin.Locks(c, db); return err },
		"Problems":      func(c context.Context) error { _, err := admin.Problems(c, db); return err },
		"Queues":        func(c context.Context) error { _, err := admin.Queues(c, db); return err },
		"RateLimits":    func(c context.Context) error { _, err := admin.RateLimits(c, db); return err },
		"Consumers":     func(c context.Context) error { _, err := admin.Consumers(c, db); return err },
		"Groups":        func(c context.Context) error { _, err := admin.Groups(c, db); return err },
		"Schema":        func(c context.Context) error { _, err := admin.Schema(c, db); return err },
		"WaitersOf":     func(c context.Context) error { _, err := admin.WaitersOf(c, db, none); return err },
		"Topics":        func(c context.Context) error { _, err := admin.Topics(c, db); return err },
		"Traffic":       func(c context.Context) error { _, err := admin.Traffic(c, db, "", time.Time{}); return err },
		"TrafficAll":    func(c context.Context) error { _, err := admin.TrafficAll(c, db, time.Time{}); return err },
		"TrafficSteps": func(c context.Context) error {
			_, err := admin.TrafficSteps(c, db, "", time.Time{}, time.Hour)
			return err
		},
		"WithRemote": func(c context.Context) error { return admin.WithRemote(c, "::1").Err() },
		"Workers":    func(c context.Context) error { _, err := admin.Workers(c, db); return err },
	}
	unsupported := []string{"Database"}
	if !admin.IsFile(db) {
		unsupported = []string{"Backup", "File", "Schema"}
	}
	before := testkit.Dump(t, writer.SQL())
	for _, name := range exportedFunctions(t) {
		require.True(t, writes[name] != nil || reads[name] != nil, "%s is not in the table", name)
		call, want := reads[name], error(nil)
		if writes[name] != nil {
			call, want = writes[name], honker.ErrReadOnly
		}
		if slices.Contains(unsupported, name) {
			want = honker.ErrUnsupported
		}
		require.ErrorIs(t, call(ctx), want, name)
	}
	require.Equal(t, before, testkit.Dump(t, writer.SQL()))
}

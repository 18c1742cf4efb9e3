package honker_test

import (
	"context"
	"database/sql"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// withoutTxForm maps writing verbs without a Tx form to the reason.
var withoutTxForm = map[string]string{
	"DB.Tx":                 "it is the transaction",
	"DB.Lock":               "a lock that the rollback takes away guards nothing",
	"DB.TryLock":            "a lock that the rollback takes away guards nothing",
	"DB.Maintain":           "a loop",
	"DB.PruneNotifications": "several transactions",
	"DB.SweepRateLimits":    "several transactions",
	"Queue.SweepExpired":    "several transactions",
	"Stream.Compact":        "several transactions",
	"Group.Delete":          "several transactions",
	"Scheduler.Tick":        "several transactions",
	"Batch.Cancel":          "several transactions",
	"Queue.AckMany":         "AckTx of each job is for transactions",
	"Queue.Claim":           "a claim waits for jobs, and handlers run outside of transactions",
	"Queue.Jobs":            "a loop",
	"Queue.Work":            "a loop; WorkTx is another one, with a transaction for each job",
	"Queue.WorkDue":         "a loop; WorkDueTx is another one, with a transaction for each job",
	"Lanes.Work":            "a loop; WorkTx is another one, with a transaction for each job",
	"Outbox.Run":            "a loop",
	"Scheduler.Run":         "a loop",
	"Stream.Consume":        "a loop",
	"Stream.Subscribe":      "a loop",
	"Group.Work":            "a loop",
	"Group.Join":            "a membership is renewed outside of transactions",
	"RateLimit.Wait":        "it waits",
	"Job.Extend":            "a lease is renewed outside of transactions",
	"Delivery.Extend":       "a lease is renewed outside of transactions",
	"Member.All":            "a loop",
	"Member.Claim":          "a claim waits for events, and handlers run outside of transactions",
	"Member.Leave":          "a membership ends outside of transactions",
	"Lock.Unlock":           "a lock is released outside of transactions",
}

// handles are the types whose verbs are not classified in readonly_test.go.
var handles = map[string]reflect.Type{
	"Job":      reflect.TypeFor[*honker.Job[int]](),
	"Event":    reflect.TypeFor[*honker.Event[int]](),
	"Delivery": reflect.TypeFor[*honker.Delivery[int]](),
	"Member":   reflect.TypeFor[*honker.Member[int]](),
	"Lock":     reflect.TypeFor[*honker.Lock](),
}

// Every writing verb has a Tx form, or a documented reason why it has none.
func TestTxForm_EveryWrite(t *testing.T) {
	t.Parallel()
	table, values := readOnlyVerbs(honkertest.Open(t, nil), nil)
	types := map[string]reflect.Type{}
	for name, value := range values {
		types[name] = reflect.TypeOf(value)
	}
	writes := map[string]bool{}
	for verb := range table.writes {
		writes[verb] = true
	}
	for name, typ := range handles {
		types[name] = typ
		for m := range typ.Methods() {
			writes[name+"."+m.Name] = takesContext(m)
		}
	}
	for verb, is := range writes {
		name, method, ok := strings.Cut(verb, ".")
		if !is || !ok || strings.HasSuffix(method, "Tx") && withoutTxForm[verb] == "" {
			continue // functions such as Pipe are not verbs of a handle
		}
		_, found := types[name].MethodByName(method + "Tx")
		switch why := withoutTxForm[verb]; {
		case !found:
			require.NotEmpty(t, why, "%s writes, and has neither a Tx form nor a reason to have none", verb)
		case why != "":
			require.Contains(t, why, method+"Tx is another one", "%s has a Tx form", verb)
		}
	}
	for verb := range withoutTxForm {
		require.True(t, writes[verb], "%s is no verb that writes", verb)
	}
}

// takesContext reports whether a method takes a ctx, and so may access the file.
func takesContext(m reflect.Method) bool {
	return m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]()
}

// twoForms pairs an operator's verb with its Tx form. Each returns whether it changed anything.
type twoForms struct {
	plain func(ctx context.Context, db *honker.DB) (bool, error)
	tx    func(ctx context.Context, db *honker.DB, tx honker.Tx) (bool, error)
}

// form returns the twoForms of a verb of a handle, which of returns for a DB.
func form[H any](of func(*honker.DB) H, plain func(context.Context, H) (bool, error), tx func(context.Context, honker.Tx, H) (bool, error)) twoForms {
	return twoForms{
		func(ctx context.Context, db *honker.DB) (bool, error) { return plain(ctx, of(db)) },
		func(ctx context.Context, db *honker.DB, t honker.Tx) (bool, error) { return tx(ctx, t, of(db)) },
	}
}

// operatorForms returns verbs that all change a file written by stockForForms.
func operatorForms() map[string]twoForms {
	type (
		ctx = context.Context
		q   = *honker.Queue[int]
		s   = *honker.Stream[int]
		g   = *honker.Group[int]
		sch = *honker.Scheduler
		in  = honker.Tx
	)
	queue := func(name string) func(*honker.DB) q {
		return func(db *honker.DB) q { return honker.NewQueue[int](db, name, nil) }
	}
	mails, halted := queue("mails"), queue("halted")
	orders := func(db *honker.DB) s { return honker.NewStream[int](db, "orders", nil) }
	group := func(db *honker.DB) g { return formGroup(db) }
	scheduler := func(db *honker.DB) sch { return db.Scheduler() }
	did := func(err error) (bool, error) { return err == nil, err }
	limits, kept := honker.Limits{PerKey: 3}, honker.Retention{MaxCount: 2}
	prio := 7
	change := honker.ScheduleChange{Priority: &prio}
	return map[string]twoForms{
		"Queue.Pause": form(mails, func(c ctx, q q) (bool, error) { return q.Pause(c, nil) }, func(c ctx, t in, q q) (bool, error) { return q.PauseTx(c, t, nil) }),
		"Queue.Pause of a key": form(mails, func(c ctx, q q) (bool, error) { return q.Pause(c, &honker.PauseOptions{Key: "ada"}) },
			func(c ctx, t in, q q) (bool, error) { return q.PauseTx(c, t, &honker.PauseOptions{Key: "ada"}) }),
		"Queue.Resume": form(halted, func(c ctx, q q) (bool, error) { return q.Resume(c) }, func(c ctx, t in, q q) (bool, error) { return q.ResumeTx(c, t) }),
		"Queue.ResumeKey": form(halted, func(c ctx, q q) (bool, error) { return q.ResumeKey(c, "bob") },
			func(c ctx, t in, q q) (bool, error) { return q.ResumeKeyTx(c, t, "bob") }),
		"Queue.SetLimits": form(mails, func(c ctx, q q) (bool, error) { return did(q.SetLimits(c, limits)) },
			func(c ctx, t in, q q) (bool, error) { return did(q.SetLimitsTx(c, t, limits)) }),
		"Queue.SetRetention": form(mails, func(c ctx, q q) (bool, error) { return did(q.SetRetention(c, honker.QueueRetention{Dead: kept})) },
			func(c ctx, t in, q q) (bool, error) {
				return did(q.SetRetentionTx(c, t, honker.QueueRetention{Dead: kept}))
			}),
		"Queue.ReleaseUnique": form(mails, func(c ctx, q q) (bool, error) { return q.ReleaseUnique(c, "k") },
			func(c ctx, t in, q q) (bool, error) { return q.ReleaseUniqueTx(c, t, "k") }),
		"Stream.Seek": form(orders, func(c ctx, s s) (bool, error) { return did(s.Seek(c, "view", honker.Beginning)) },
			func(c ctx, t in, s s) (bool, error) { return did(s.SeekTx(c, t, "view", honker.Beginning)) }),
		"Stream.Seek beyond the head": form(orders, func(c ctx, s s) (bool, error) { return did(s.Seek(c, "view", honker.Offset(99))) },
			func(c ctx, t in, s s) (bool, error) { return did(s.SeekTx(c, t, "view", honker.Offset(99))) }),
		"Stream.SetRetention": form(orders, func(c ctx, s s) (bool, error) { return did(s.SetRetention(c, kept)) },
			func(c ctx, t in, s s) (bool, error) { return did(s.SetRetentionTx(c, t, kept)) }),
		"Stream.DeleteConsumer": form(orders, func(c ctx, s s) (bool, error) { return s.DeleteConsumer(c, "view") },
			func(c ctx, t in, s s) (bool, error) { return s.DeleteConsumerTx(c, t, "view") }),
		"Group.Redeliver": form(group, func(c ctx, g g) (bool, error) { return g.Redeliver(c, 1) }, func(c ctx, t in, g g) (bool, error) { return g.RedeliverTx(c, t, 1) }),
		"Group.Discard":   form(group, func(c ctx, g g) (bool, error) { return g.Discard(c, 1) }, func(c ctx, t in, g g) (bool, error) { return g.DiscardTx(c, t, 1) }),
		"Scheduler.Update": form(scheduler, func(c ctx, s sch) (bool, error) { return s.Update(c, "tea", change) },
			func(c ctx, t in, s sch) (bool, error) { return s.UpdateTx(c, t, "tea", change) }),
		"Scheduler.Pause":  form(scheduler, func(c ctx, s sch) (bool, error) { return s.Pause(c, "tea") }, func(c ctx, t in, s sch) (bool, error) { return s.PauseTx(c, t, "tea") }),
		"Scheduler.Resume": form(scheduler, func(c ctx, s sch) (bool, error) { return s.Resume(c, "lunch") }, func(c ctx, t in, s sch) (bool, error) { return s.ResumeTx(c, t, "lunch") }),
		"Scheduler.Unregister": form(scheduler, func(c ctx, s sch) (bool, error) { return s.Unregister(c, "tea") },
			func(c ctx, t in, s sch) (bool, error) { return s.UnregisterTx(c, t, "tea") }),
		"Scheduler.Trigger": form(scheduler, func(c ctx, s sch) (bool, error) { id, err := s.Trigger(c, "tea"); return id > 0, err },
			func(c ctx, t in, s sch) (bool, error) { id, err := s.TriggerTx(c, t, "tea"); return id > 0, err }),
	}
}

func formGroup(db *honker.DB) *honker.Group[int] {
	return honker.NewStream[int](db, "orders", nil).Group("g", &honker.GroupOptions{MaxAttempts: 1})
}

func stockForForms(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx, s := t.Context(), honker.NewStream[int](db, "orders", nil)
	testkit.PublishUpTo(t, s, 3)
	testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "view", 2))
	m, err := formGroup(db).Join(ctx, "m")
	require.NoError(t, err)
	ds, err := m.Claim(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, ds[0].Nack(ctx, testkit.ErrCause))
	require.NoError(t, m.Leave(ctx))
	testkit.Exec(t, db, `UPDATE _honkerx_group_claims SET holder = 'm'`) // the original holder has a random part
	testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1, honker.Unique("k", nil))
	halted := honker.NewQueue[int](db, "halted", nil)
	for _, key := range []string{"", "bob"} {
		testkit.RequireChanged(t, true)(halted.Pause(ctx, &honker.PauseOptions{Key: key}))
	}
	mails := honker.NewQueue[int](db, "mails", nil) // a job of ada runs, and three more are held for its key
	require.NoError(t, mails.SetLimits(ctx, honker.Limits{PerKey: 1}))
	for range 4 {
		testkit.Enqueue(t, mails, 2, honker.Key("ada"), honker.Priority(1))
	}
	testkit.Claim(t, mails, 2)
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	testkit.Register(t, db, testkit.Every("lunch", "@every 1h"))
	testkit.RequireChanged(t, true)(db.Scheduler().Pause(ctx, "lunch"))
}

// A Tx form makes the same writes as the plain verb in the caller's transaction, including the audit entry
// of an actor. A rollback undoes them. Inside the transaction the plain verb is refused, and the error
// names the Tx form. A nil transaction is ErrInvalid.
func TestTxForm_Operators(t *testing.T) {
	t.Parallel()
	for name, f := range operatorForms() {
		t.Run(name, func(t *testing.T) {
			var plain []string
			use := func(run func(t *testing.T, ctx context.Context, db *honker.DB)) func(*testing.T) {
				return func(t *testing.T) {
					honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
						stockForForms(t, db)
						run(t, honker.WithActor(t.Context(), "anna"), db)
					})
				}
			}
			t.Run("plain", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				before := rowsOf(t, db)
				testkit.RequireChanged(t, true)(f.plain(ctx, db))
				plain = rowsOf(t, db)
				require.NotEqual(t, before, plain)
			}))
			t.Run("committed", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					testkit.RequireChanged(t, true)(f.tx(ctx, db, tx))
					return nil
				}))
				require.Equal(t, plain, rowsOf(t, db))
			}))
			t.Run("committed on the pool", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				tx, err := db.SQL().BeginTx(ctx, nil)
				require.NoError(t, err)
				testkit.RequireChanged(t, true)(f.tx(ctx, db, tx))
				require.NoError(t, tx.Commit())
				require.Equal(t, plain, rowsOf(t, db))
			}))
			t.Run("not committed", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				before := rowsOf(t, db)
				err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					_, err := f.plain(ctx, db)
					require.ErrorIs(t, err, honker.ErrInTx)
					verb, _, _ := strings.Cut(name, " ")
					_, verb, _ = strings.Cut(verb, ".")
					require.ErrorContains(t, err, verb+"Tx")
					testkit.RequireChanged(t, true)(f.tx(ctx, db, tx))
					return testkit.ErrCause
				})
				require.ErrorIs(t, err, testkit.ErrCause)
				_, err = f.tx(ctx, db, nil)
				require.ErrorIs(t, err, honker.ErrInvalid)
				require.Equal(t, before, rowsOf(t, db))
			}))
		})
	}
}

// rowsOf returns every row of the file except the counts of jobs by minute, which are written together with
// other writes.
func rowsOf(t *testing.T, db *honker.DB) []string {
	return slices.DeleteFunc(testkit.Dump(t, db.SQL()), func(row string) bool { return strings.HasPrefix(row, "_honkerx_minutes|") })
}

// A Tx form accepts a transaction of an attached pool.
func TestTxForm_Attached(t *testing.T) {
	t.Parallel()
	for name, f := range operatorForms() {
		path, db := testkit.OpenShared(t)
		stockForForms(t, db)
		attached := testkit.Attach(t, path)
		tx, err := attached.SQL().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(`UPDATE _honkerx_meta SET value = value`)
		require.NoError(t, err)
		changed, err := f.tx(t.Context(), attached, tx)
		require.NoError(t, err, name)
		require.True(t, changed, name)
		require.NoError(t, tx.Rollback())
	}
}

// A pause in a transaction is reported, and workers wake, after the commit. After a rollback neither
// happens.
func TestTxForm_AfterCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []honker.Paused
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour,
			Observer: &honker.Observer{Paused: func(p honker.Paused) { told = append(told, p) }}})
		ctx, q := t.Context(), honker.NewQueue[int](db, "mails", nil)
		testkit.RequireChanged(t, true)(q.Pause(ctx, nil))
		testkit.Enqueue(t, q, 1)
		ran := 0
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { ran++; return nil }, nil)
		synctest.Wait()
		told = nil
		resume := func(end error) {
			err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				testkit.RequireChanged(t, true)(q.ResumeTx(ctx, tx))
				testkit.RequireChanged(t, false)(q.ResumeTx(ctx, tx))
				require.Empty(t, told)
				return end
			})
			require.ErrorIs(t, err, end)
			synctest.Wait()
		}
		resume(testkit.ErrCause)
		require.Empty(t, told)
		require.Zero(t, ran)
		resume(nil)
		require.Equal(t, []honker.Paused{{Queue: "mails", Resumed: true}}, told)
		require.Equal(t, 1, ran)
		require.NoError(t, stop())
	})
}

// In one transaction a read model is emptied and its consumer moved to the beginning. A rebuild that is
// rolled back changes neither, and a committed rebuild counts each event once.
func TestStream_SeekTx_Rebuild(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 10)
	testkit.Exec(t, db, `CREATE TABLE seen (n INTEGER)`)
	project := func() {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		require.NoError(t, s.Consume(ctx, "view", func(ctx context.Context, e *honker.Event[int]) error {
			if e.Data == 9 {
				defer stop()
			}
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, `INSERT INTO seen VALUES (?)`, e.Data); err != nil {
					return err
				}
				return e.AckTx(ctx, tx)
			})
		}, nil))
	}
	rebuild := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `DELETE FROM seen`); err != nil {
				return err
			}
			if err := s.SeekTx(ctx, tx, "view", honker.Beginning); err != nil {
				return err
			}
			return end
		})
	}
	count := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM seen`) }
	project()
	require.ErrorIs(t, rebuild(testkit.ErrCause), testkit.ErrCause)
	require.EqualValues(t, 10, count())
	require.EqualValues(t, 10, testkit.SavedOffset(t, s, "view"))
	require.NoError(t, rebuild(nil))
	require.Zero(t, count())
	project()
	require.EqualValues(t, 10, count())
}

// SeekTx with an unknown consumer or an invalid offset changes nothing.
func TestStream_SeekTx_BadInput(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 3)
	testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "view", 2))
	before := testkit.Dump(t, db.SQL())
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := s.SeekTx(ctx, tx, "none", honker.Beginning)
		require.ErrorIs(t, err, honker.ErrNotFound)
		require.ErrorContains(t, err, `honker: seek "orders": consumer "none"`)
		require.ErrorIs(t, s.SeekTx(ctx, tx, "view", honker.Offset(-1)), honker.ErrInvalid)
		require.ErrorIs(t, s.SeekTx(ctx, tx, "", honker.Beginning), honker.ErrInvalid)
		return nil
	}))
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

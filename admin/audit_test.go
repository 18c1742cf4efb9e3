package admin_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// audit returns the file's audit entries, newest first, without IDs and times.
func audit(t *testing.T, db *honker.DB) (lines []string) {
	t.Helper()
	all, err := admin.Audit(context.Background(), db, nil)
	require.NoError(t, err)
	for _, e := range all {
		require.WithinDuration(t, time.Now(), e.At, time.Hour)
		lines = append(lines, fmt.Sprintf("%s %q %q %s %d", e.Verb, e.Actor, e.Remote, e.Filter, e.N))
	}
	return lines
}

// An import is recorded in a single entry with its destination queue, if any, even if it takes several
// transactions. An import that adds nothing leaves no entry.
func TestAudit_Import(t *testing.T) {
	ctx, db, _, _ := open(t)
	lines := strings.Repeat(`{"queue": "mails", "payload": 1}`+"\n", 1500)
	for _, o := range []admin.ImportOptions{{}, {To: "again"}, {DryRun: true}} {
		r, err := admin.ImportJobs(honker.WithActor(ctx, "anna"), db, strings.NewReader(lines), &o)
		require.NoError(t, err)
		require.EqualValues(t, 1500, r.Matched)
	}
	_, err := admin.ImportJobs(ctx, db, strings.NewReader(""), nil)
	require.NoError(t, err)
	_, err = admin.ImportJobs(ctx, db, strings.NewReader(`{"queue": "mails", "state": "done", "payload": 1}`), nil)
	require.NoError(t, err)
	require.Equal(t, []string{`import jobs "anna" "" {"queue":"again"} 1500`, `import jobs "anna" ""  1500`}, audit(t, db))
}

// Enqueue's entry names the job. A call that adds no job leaves no entry.
func TestAudit_Enqueue(t *testing.T) {
	ctx, db, q, _ := open(t)
	anna := honker.WithActor(ctx, "anna")
	id, err := admin.Enqueue(anna, db, "jobs", json.RawMessage(`7.0`), honker.Delay(time.Hour), honker.MaxAttempts(2))
	require.NoError(t, err)
	job, err := db.Job(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "7.0", string(job.Payload))
	require.Equal(t, honker.PhaseScheduled, job.Phase)
	require.Equal(t, 2, job.MaxAttempts)
	for name, bad := range map[string]func() (int64, error){
		"a name":     func() (int64, error) { return admin.Enqueue(anna, db, "", 1) },
		"no DB":      func() (int64, error) { return admin.Enqueue(anna, nil, "jobs", 1) },
		"an option":  func() (int64, error) { return admin.Enqueue(anna, db, "jobs", 1, honker.Delay(-1)) },
		"a payload":  func() (int64, error) { return admin.Enqueue(anna, db, "jobs", func() {}) },
		"not a JSON": func() (int64, error) { return admin.Enqueue(anna, db, "jobs", json.RawMessage(`{`)) },
	} {
		id, err := bad()
		require.Error(t, err, name)
		require.Zero(t, id, name)
	}
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		_, err := admin.Enqueue(ctx, db, "jobs", 1)
		return err
	}), honker.ErrInTx)
	_, err = q.Enqueue(anna, 1, honker.Unique("k", nil)) // by the application
	require.NoError(t, err)
	_, err = admin.Enqueue(anna, db, "jobs", 1, honker.Unique("k", nil))
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf(`enqueue "anna" "" {"job":"%d","queue":"jobs"} 1`, id)}, audit(t, db))
	count, err := admin.CountJobs(ctx, db, admin.JobFilter{}, 10)
	require.NoError(t, err)
	require.EqualValues(t, 2, count.N)
}

// Every change made through package admin leaves an entry, with or without an actor. A call that changes
// nothing leaves none.
func TestAudit_Verbs(t *testing.T) {
	ctx, db, q, _ := open(t)
	anna := admin.WithRemote(honker.WithActor(ctx, "anna"), "10.0.0.7:4711")
	for range 3 {
		bury(t, q, 1, "no")
	}
	_, err := admin.Requeue(anna, db, all, &admin.RequeueOptions{Limit: 1, Delay: time.Hour})
	require.NoError(t, err)
	_, err = admin.RunNow(ctx, db, all, nil)
	require.NoError(t, err)
	_, err = admin.Cancel(ctx, db, all, nil)
	require.NoError(t, err)
	_, err = admin.Discard(ctx, db, admin.JobFilter{Queues: []string{"jobs"}, Error: "no"}, nil)
	require.NoError(t, err)
	testkit.TakeLock(t, db, "printer", &honker.LockOptions{Owner: "bob"})
	broken, err := admin.BreakLock(anna, db, "printer", "bob")
	require.NoError(t, err)
	require.True(t, broken)
	for _, by := range []context.Context{ctx, anna} {
		require.NoError(t, db.Maintain(by, &honker.MaintainOptions{Once: true})) // by the application, so it leaves no entry
	}
	want := []string{
		`maintain "anna" "10.0.0.7:4711"  1`,
		`break lock "anna" "10.0.0.7:4711" {"lock":"printer"} 1`,
		`discard "" "" {"Error":"no","Queues":["jobs"]} 2`,
		`cancel "" "" {"All":true} 1`,
		`run now "" "" {"All":true} 1`,
		`requeue "anna" "10.0.0.7:4711" {"All":true,"Delay":"1h"} 1`,
	}
	require.Equal(t, want, audit(t, db))

	for _, verb := range []func() (*admin.Report, error){
		func() (*admin.Report, error) { return admin.Requeue(anna, db, all, nil) },
		func() (*admin.Report, error) { return admin.Discard(anna, db, all, nil) },
		func() (*admin.Report, error) { return admin.Cancel(anna, db, all, &admin.CancelOptions{DryRun: true}) },
	} {
		_, err := verb()
		require.NoError(t, err)
	}
	broken, err = admin.BreakLock(anna, db, "printer", "bob")
	require.NoError(t, err)
	require.False(t, broken)
	require.Equal(t, want, audit(t, db))
}

// Canceling a batch leaves a single entry, no matter how many transactions it takes.
func TestAudit_CancelBatch(t *testing.T) {
	ctx, db, q, _ := open(t)
	for _, by := range []context.Context{ctx, honker.WithActor(ctx, "anna")} {
		batch, err := db.NewBatch(ctx, nil)
		require.NoError(t, err)
		_, err = q.EnqueueMany(ctx, make([]int, 1500), honker.InBatch(batch.ID))
		require.NoError(t, err)
		_, err = q.Enqueue(ctx, 1, honker.AfterBatch(batch.ID))
		require.NoError(t, err)
		for range 2 { // the second call changes nothing
			_, err = batch.Cancel(by)
			require.NoError(t, err)
		}
	}
	require.Equal(t, []string{`cancel batch "anna" "" {"batch":"2"} 1501`}, audit(t, db))
}

// Methods that applications also call leave an entry only if ctx names an actor.
func TestAudit_ActorOnly(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q, s := honker.NewQueue[int](db, "mails", nil), honker.NewStream[int](db, "orders", nil)
		schedules := db.Scheduler()
		testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
		var count int64
		use := func(ctx context.Context) {
			count++
			_, err := q.Resume(ctx)
			require.NoError(t, err, "not paused: nothing is noted")
			_, err = q.Pause(ctx, nil)
			require.NoError(t, err)
			_, err = q.Resume(ctx)
			require.NoError(t, err)
			require.NoError(t, s.SetRetention(ctx, honker.Retention{MaxCount: 5}))
			for range 2 { // the second call changes nothing
				require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Done: honker.Retention{MaxCount: count}}))
				require.NoError(t, q.SetLimits(ctx, honker.Limits{PerKey: int(count)}))
			}
			_, err = q.Pause(ctx, &honker.PauseOptions{Key: "ada"})
			require.NoError(t, err)
			for range 2 {
				_, err = q.ResumeKey(ctx, "ada")
				require.NoError(t, err)
			}
			_, err = schedules.Trigger(ctx, "tea")
			require.NoError(t, err)
			testkit.RequireChanged(t, true)(schedules.Pause(ctx, "tea"))
			testkit.RequireChanged(t, false)(schedules.Pause(ctx, "tea"))
			testkit.RequireChanged(t, true)(schedules.Resume(ctx, "tea"))
		}
		use(t.Context())
		require.Empty(t, audit(t, db))
		use(honker.WithActor(t.Context(), "anna"))
		require.Equal(t, []string{
			`resume schedule "anna" "" {"schedule":"tea"} 1`,
			`pause schedule "anna" "" {"schedule":"tea"} 1`,
			`trigger schedule "anna" "" {"schedule":"tea"} 1`,
			`resume "anna" "" {"key":"ada","queue":"mails"} 1`,
			`pause "anna" "" {"key":"ada","queue":"mails"} 1`,
			`set limits "anna" "" {"queue":"mails"} 1`,
			`set retention "anna" "" {"queue":"mails"} 1`,
			`set retention "anna" "" {"topic":"orders"} 1`,
			`resume "anna" "" {"queue":"mails"} 1`,
			`pause "anna" "" {"queue":"mails"} 1`,
		}, audit(t, db))
	})
}

// Moving or deleting a consumer, and changing a group or its dead events, leaves an entry if the call
// changed anything.
func TestAudit_StreamVerbs(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		s := honker.NewStream[int](db, "orders", nil)
		g := s.Group("billing", &honker.GroupOptions{MaxAttempts: 1})
		use := func(ctx context.Context) {
			testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "mail", 1))
			require.NoError(t, s.Seek(ctx, "mail", honker.Beginning))
			require.ErrorIs(t, s.Seek(ctx, "none", honker.End), honker.ErrNotFound)
			first := twoDead(t, s, g)
			for _, changed := range []bool{true, false} {
				testkit.RequireChanged(t, changed)(s.DeleteConsumer(ctx, "mail"))
				testkit.RequireChanged(t, changed)(g.Redeliver(ctx, first))
				testkit.RequireChanged(t, changed)(g.Discard(ctx, first+1))
			}
			for _, changed := range []bool{true, false} {
				testkit.RequireChanged(t, changed)(g.Delete(ctx))
			}
		}
		use(t.Context())
		require.Empty(t, audit(t, db))
		use(honker.WithActor(t.Context(), "anna"))
		require.Equal(t, []string{
			`delete group "anna" "" {"group":"billing","topic":"orders"} 1`,
			`discard event "anna" "" {"group":"billing","offset":"4","topic":"orders"} 1`,
			`redeliver event "anna" "" {"group":"billing","offset":"3","topic":"orders"} 1`,
			`delete consumer "anna" "" {"consumer":"mail","topic":"orders"} 1`,
			`seek "anna" "" {"consumer":"mail","topic":"orders"} 1`,
		}, audit(t, db))
	})
}

// twoDead dead-letters two of the group's events and returns the first one's offset.
func twoDead(t *testing.T, s *honker.Stream[int], g *honker.Group[int]) (first int64) {
	t.Helper()
	m, err := g.Join(t.Context(), "m")
	require.NoError(t, err)
	first = testkit.PublishUpTo(t, s, 2)[0]
	for n := 2; n > 0; {
		ds, err := m.Claim(t.Context(), n)
		require.NoError(t, err)
		for _, d := range ds {
			require.NoError(t, d.Nack(t.Context(), testkit.ErrCause))
			if d.Offset >= first {
				n--
			}
		}
	}
	return first
}

// Registering a schedule leaves an entry if it changes the schedule, even in the caller's transaction.
func TestAudit_Register(t *testing.T) {
	ctx, db, _, _ := open(t)
	anna := honker.WithActor(ctx, "anna")
	tea := testkit.Every("tea", "@every 1h")
	register := func(ctx context.Context) { require.NoError(t, db.Scheduler().Register(ctx, tea)) }
	register(ctx)
	require.Empty(t, audit(t, db))
	for _, change := range []func(){
		func() {},
		func() { tea.Spec = "@every 2h" },
		func() { tea.Missed = honker.Skip },
		func() { tea.Missed = honker.FireAll },
	} {
		change()
		register(anna)
		register(anna)
	}
	require.NoError(t, db.Tx(ctx, func(_ context.Context, tx *sql.Tx) error {
		tea.Name = "coffee"
		return db.Scheduler().RegisterTx(anna, tx, tea)
	}))
	want := slices.Repeat([]string{`register schedule "anna" "" {"schedule":"tea"} 1`}, 3)
	require.Equal(t, append([]string{`register schedule "anna" "" {"schedule":"coffee"} 1`}, want...), audit(t, db))
}

// A change that takes many transactions leaves a single entry with the number of committed changes.
func TestAudit_Chunks(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreDead(t, db, 3000, func(n int64) testkit.StoredJob { return testkit.StoredJob{DiedAt: n} })
	testkit.Exec(t, db, testkit.Either(`CREATE TRIGGER last BEFORE DELETE ON _honker_dead WHEN OLD.id = 2500 BEGIN SELECT RAISE(ABORT, 'keep it'); END`,
		`DO $$ BEGIN
  CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''keep it''; END';
  CREATE TRIGGER last BEFORE DELETE ON dead FOR EACH ROW WHEN (OLD.id = 2500) EXECUTE FUNCTION keep();
END $$`))
	r, err := admin.Discard(ctx, db, all, nil)
	require.ErrorContains(t, err, "keep it")
	require.Positive(t, r.Changed)
	require.Less(t, r.Changed, int64(2500))
	require.Equal(t, []string{fmt.Sprintf(`discard "" "" {"All":true} %d`, r.Changed)}, audit(t, db))
}

// The entry is written in the same transaction as the change and is rolled back with it.
func TestAudit_Tx(t *testing.T) {
	ctx, db, q, _ := open(t)
	bury(t, q, 1, "no")
	requeue := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := admin.RequeueTx(ctx, db, tx, all, nil)
			require.NoError(t, err)
			return end
		})
	}
	require.ErrorIs(t, requeue(testkit.ErrCause), testkit.ErrCause)
	require.Empty(t, audit(t, db))
	require.NoError(t, requeue(nil))
	require.Equal(t, []string{`requeue "" "" {"All":true} 1`}, audit(t, db))
}

// A filter can be decoded from its entry. Long lists are truncated, and a filter that's still too long
// is omitted.
func TestAudit_Filter(t *testing.T) {
	ctx, db, _, _ := open(t)
	discard := func(f admin.JobFilter) json.RawMessage {
		testkit.StoreDead(t, db, 1, func(int64) testkit.StoredJob {
			return testkit.StoredJob{ID: 7, Payload: `{"a":"` + strings.Repeat("x", 9000) + `"}`, Error: "no <way>"}
		})
		r, err := admin.Discard(ctx, db, f, nil)
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Changed)
		entries, err := admin.Audit(ctx, db, &admin.AuditOptions{Limit: 1})
		require.NoError(t, err)
		require.Len(t, entries, 1)
		return entries[0].Filter
	}
	f := admin.JobFilter{
		Queues: []string{"jobs"}, IDs: []int64{7}, Error: "<way>", Contains: "xx", DiedSince: time.Unix(1, 0).UTC(),
		Where: map[string]string{"a": strings.Repeat("x", 9000)},
	}
	require.Nil(t, discard(f))
	f.Where = nil
	var back admin.JobFilter
	require.NoError(t, json.Unmarshal(discard(f), &back))
	require.Equal(t, f, back)
	back = admin.JobFilter{}
	f.IDs = append(f.IDs, make([]int64, 500)...)
	require.NoError(t, json.Unmarshal(discard(f), &back))
	require.Equal(t, f.IDs[:100], back.IDs)
	require.Nil(t, discard(admin.JobFilter{CreatedBefore: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}))
}

// The newest entries are kept and can be read in pages.
func TestAudit_BoundAndPages(t *testing.T) {
	ctx, db, q, _ := open(t)
	testkit.Exec(t, db, testkit.Either(testkit.Numbers(10_000)+`INSERT INTO _honkerx_audit (at_ms, verb, n) SELECT n, 'old ' || n, 1 FROM some`,
		`INSERT INTO audit (at, verb, n) SELECT to_timestamp(n), 'old ' || n, 1 FROM generate_series(1, 10000) AS n`))
	for range 3 {
		_, err := q.Pause(honker.WithActor(ctx, "anna"), nil)
		require.NoError(t, err)
	}
	require.EqualValues(t, 10_000, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_audit`))
	require.EqualValues(t, 4, testkit.QueryInt(t, db.SQL(), `SELECT min(id) FROM _honkerx_audit`))
	var verbs []string
	var before int64
	for range 3 {
		page, err := admin.Audit(ctx, db, &admin.AuditOptions{Limit: 2, Before: before})
		require.NoError(t, err)
		require.Len(t, page, 2)
		for _, e := range page {
			verbs = append(verbs, e.Verb)
		}
		before = page[1].ID
	}
	require.Equal(t, []string{"pause", "pause", "pause", "old 10000", "old 9999", "old 9998"}, verbs)
	for _, bad := range []admin.AuditOptions{{Limit: -1}, {Limit: 1001}, {Before: -1}} {
		_, err := admin.Audit(ctx, db, &bad)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
}

// An entry reads as a sentence.
func TestAuditEntry_String(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb, filter string
		n            int64
		want         string
	}{
		{"requeue", `{"Queues":["emails"],"Fingerprint":"62d3","Spread":"10m","To":"again","Delay":"1h"}`, 3000, "requeued 3,000 dead jobs of queue emails of kind 62d3 into queue again, after 1h, over 10m"},
		{"discard", `{"All":true}`, 1, "discarded 1 dead job"},
		{"discard", ``, 2, "discarded 2 dead jobs"},
		{"cancel", `{"IDs":[7,8],"Key":"acme","MinAttempts":3}`, 2, "cancelled 2 jobs with key acme with at least 3 attempts (jobs 7, 8)"},
		{"run now", `{"Queues":["a","b"],"Phases":["scheduled","held"],"Batch":4,"Where":{"id":"17"},"Error":"no\nroute"}`, 5,
			`set 5 jobs of queue a, b of batch 4 in phase scheduled or held with error "no" where id is 17 to run now`},
		{"discard", `{"DiedSince":"2026-11-28T20:00:00+01:00","DiedBefore":"2026-11-28T21:00:00Z","CreatedSince":"2026-11-01T00:00:00Z"}`, 2,
			"discarded 2 dead jobs, created since 2026-11-01 00:00:00, died since 2026-11-28 19:00:00, died before 2026-11-28 21:00:00"},
		{"pause", `{"queue":"mails","key":"ada","reason":"over quota","until":"2026-11-28T21:00:00Z"}`, 1, `paused key ada of queue mails until 2026-11-28T21:00:00Z: "over quota"`},
		{"set retention", `{"topic":"orders"}`, 1, "set the retention of topic orders"},
		{"redeliver event", `{"topic":"orders","group":"mailers","offset":"7"}`, 1, "redelivered event 7 of group mailers of topic orders"},
		{"break relay partition", `{"relay queue":"webhooks","partition":"3","family":"x"}`, 1, "freed partition 3 of relay queue webhooks of family x"},
		{"cancel batch", `{"batch":"2"}`, 1501, "cancelled batch 2 with 1,501 jobs"},
		{"signal flow", `{"flow":"order","run":"17","signal":"approved"}`, 1, "sent signal approved of run 17 of flow order"},
		{"restart flow", `{"flow":"order","run":"17","step":"charge"}`, 1, "restarted step charge of run 17 of flow order"},
		{"import jobs", ``, 1500, "imported 1,500 jobs"},
		{"import jobs", `{"queue":"again"}`, 1, "imported 1 job into queue again"},
		{"discard relay dead letter", `{"relay queue":"webhooks","dead letters":"7 8","family":"x"}`, 2, "discarded 2 dead letters of relay queue webhooks of family x"},
		{"pause actors", `{"actors":"mailer:default","prefix":"hero"}`, 3, "paused 3 actors: mailer:default"},
		{"enqueue", `{"queue":"jobs","job":"7"}`, 1, "enqueued job 7 of queue jobs"},
		{"maintain", ``, 1, "maintained the database"},
		{"bury", `{"Requeue":7,"Queues":["jobs"]}`, 2, "buried 2 jobs of queue jobs of requeue 7"},
		{"paint", `{"color":"oak","queue":"jobs"}`, 1, "paint: color oak of queue jobs"},
		{"paint", ``, 3, "paint: 3"},
		{"pause", `[`, 1, "paused"},
	} {
		require.Equal(t, c.want, admin.AuditEntry{Verb: c.verb, Filter: json.RawMessage(c.filter), N: c.n}.String())
	}
}

// The log is searched by the queues, jobs, verbs, actors and times of its entries, all of it if necessary.
func TestAudit_Search(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		q := honker.NewQueue[int](db, "mails", nil)
		anna, bob := honker.WithActor(ctx, "anna"), honker.WithActor(ctx, "bob")
		pause := &honker.PauseOptions{Reason: "no server", Until: time.Now().Add(time.Hour)}
		_, err := q.Pause(anna, pause)
		require.NoError(t, err)
		noon := time.Now().Add(time.Minute)
		time.Sleep(2 * time.Minute)
		for range 3 {
			bury(t, honker.NewQueue[int](db, "jobs", nil), 1, "no")
		}
		_, err = admin.Requeue(bob, db, admin.JobFilter{IDs: []int64{1}, Queues: []string{"jobs"}}, &admin.RequeueOptions{Spread: 10 * time.Minute, Delay: time.Minute, To: "again"})
		require.NoError(t, err)
		id, err := admin.Enqueue(anna, db, "mails", 1)
		require.NoError(t, err)
		for range 700 { // more than two reads of the log
			_, err := q.Resume(bob)
			require.NoError(t, err)
			_, err = q.Pause(bob, nil)
			require.NoError(t, err)
		}
		for i, c := range []struct {
			opts admin.AuditOptions
			want []string
		}{
			{admin.AuditOptions{Actor: "anna"}, []string{fmt.Sprintf("enqueued job %d of queue mails", id), `paused queue mails until ` + pause.Until.UTC().Format(time.RFC3339) + `: "no server"`}},
			{admin.AuditOptions{Job: id}, []string{fmt.Sprintf("enqueued job %d of queue mails", id)}},
			{admin.AuditOptions{Job: 1}, []string{"requeued 1 dead job of queue jobs (job 1) into queue again, after 1m, over 10m"}},
			{admin.AuditOptions{Queue: "jobs"}, []string{"requeued 1 dead job of queue jobs (job 1) into queue again, after 1m, over 10m"}},
			{admin.AuditOptions{Verb: "requeue", Queue: "mails"}, nil},
			{admin.AuditOptions{Until: noon}, []string{`paused queue mails until ` + pause.Until.UTC().Format(time.RFC3339) + `: "no server"`}},
			{admin.AuditOptions{Since: noon, Actor: "anna"}, []string{fmt.Sprintf("enqueued job %d of queue mails", id)}},
			{admin.AuditOptions{Limit: 1, Actor: "anna"}, []string{fmt.Sprintf("enqueued job %d of queue mails", id)}},
		} {
			found, err := admin.Audit(ctx, db, &c.opts)
			require.NoError(t, err)
			var got []string
			for _, e := range found {
				got = append(got, e.String())
			}
			require.Equal(t, c.want, got, i)
		}
		_, err = admin.Audit(ctx, db, &admin.AuditOptions{Job: -1})
		require.ErrorIs(t, err, honker.ErrInvalid)
	})
}

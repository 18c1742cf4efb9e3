package honkertest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

type receipt struct {
	Order int64
	To    address
	Lines []string `json:",omitempty"`
}

type address struct {
	Name string
	At   time.Time
}

var tea = receipt{Order: 17, To: address{"ada", time.Date(2026, 3, 1, 9, 0, 0, 5, time.UTC)}, Lines: []string{"tea"}}

// A job is found by its arguments and equals the result of DB.Job.
func TestRequireEnqueued(t *testing.T) {
	_, db, q := testkit.NewQueue[receipt](t, nil)
	now := tea
	now.To.At = time.Now() // has a monotonic clock reading, which JSON drops
	ids := []int64{
		testkit.Enqueue(t, q, tea),
		testkit.Enqueue(t, q, receipt{Order: 18}, honker.Priority(5), honker.Unique("k", nil), honker.ExpiresIn(time.Hour), honker.Delay(time.Hour)),
		testkit.Enqueue(t, q, now),
	}
	for i, want := range []receipt{tea, {Order: 18}, now} {
		got := honkertest.RequireEnqueued(t, q, want)
		job, err := db.Job(t.Context(), ids[i])
		require.NoError(t, err)
		require.Equal(t, job, got)
	}
	honkertest.RequireEnqueued(t, q, receipt{Order: 18}, honkertest.Priority(5), honkertest.Unique("k"))
	honkertest.RequireNone(t, q, honkertest.Where(func(r receipt) bool { return r.Order == 19 }))
	requireFails(t, func(t testing.TB) { honkertest.RequireNone(t, q) }, "3 jobs wait", `"Order":17`)
}

// A failure message lists the closest matches first, with the fields that differ, and mentions jobs
// found elsewhere.
func TestRequireEnqueued_Failure(t *testing.T) {
	_, db, q := testkit.NewQueue[receipt](t, nil)
	testkit.Enqueue(t, q, receipt{Order: 3})
	near := tea
	near.To.Name = "bob"
	testkit.Enqueue(t, q, near)
	testkit.Enqueue(t, honker.NewQueue[receipt](db, "mails", nil), tea)
	failure := failureOf(t, func(t testing.TB) { honkertest.RequireEnqueued(t, q, tea) })
	require.Regexp(t, `(?s)^honkertest: 0 jobs with \{"Order":17.*wait in queue "jobs", want 1
  job 2 of "jobs", ready: .*"Order":17.*
    To.Name "bob", want "ada"
  job 1 of "jobs", ready: .*"Order":3.*
    Lines null, want \["tea"\]
    Order 3, want 17
    To.At "0001.*
    To.Name "", want "ada"
  queue "mails": wait: 1\n$`, failure)

	testkit.ClaimOneAs(t, q, "w")
	_, err := q.EnqueueMany(t.Context(), make([]receipt, 20))
	require.NoError(t, err)
	requireFails(t, func(t testing.TB) { honkertest.RequireEnqueued(t, q, tea) }, `queue "jobs": a worker holds: 1`, "and 11 more")
}

// RequireEnqueued expects exactly one job unless Count is given.
func TestRequireEnqueued_Count(t *testing.T) {
	_, _, q := testkit.NewQueue[string](t, nil)
	first := testkit.Enqueue(t, q, "a")
	testkit.Enqueue(t, q, "a")
	requireFails(t, func(t testing.TB) { honkertest.RequireEnqueued(t, q, "a") }, "2 jobs", "want 1", "matches: job 1", "matches: job 2")
	require.Equal(t, first, honkertest.RequireEnqueued(t, q, "a", honkertest.Count(2)).ID)
	require.Nil(t, honkertest.RequireEnqueued(t, q, "b", honkertest.Count(0)))
	requireFails(t, func(t testing.TB) { honkertest.RequireEnqueued(t, q, "a", honkertest.Count(3)) }, "want 3")
	requireFails(t, func(t testing.TB) { honkertest.RequireEnqueued(t, q, "b") }, `arguments "a", want "b"`)
}

// Each Match selects the expected jobs.
func TestMatch(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		soon := time.Now().Add(90 * time.Second)
		testkit.Enqueue(t, q, 1, honker.Priority(-1))
		testkit.Enqueue(t, q, 2, honker.RunAt(soon.Add(300*time.Millisecond)), honker.Unique("two", nil), honker.Key("ann"),
			honker.Headers(map[string]string{"trace.id": "7"}))
		var rounded []int
		if testkit.AsFile("times") {
			rounded = []int{2}
		}
		for name, c := range map[string]struct {
			match honkertest.Match
			want  []int
		}{
			"where":                {honkertest.Where(func(n int) bool { return n > 1 }), []int{2}},
			"priority":             {honkertest.Priority(-1), []int{1}},
			"unique":               {honkertest.Unique("two"), []int{2}},
			"no unique":            {honkertest.Unique(""), []int{1}},
			"key":                  {honkertest.Key("ann"), []int{2}},
			"no key":               {honkertest.Key(""), []int{1}},
			"header":               {honkertest.Header("trace.id", "7"), []int{2}},
			"another header":       {honkertest.Header("trace.id", "8"), nil},
			"no header":            {honkertest.Header("trace.id", ""), []int{1}},
			"at, as enqueued":      {honkertest.At(soon.Add(300*time.Millisecond), 0), []int{2}},
			"at, rounded up":       {honkertest.At(soon.Add(time.Second), 0), rounded},
			"at, the second below": {honkertest.At(soon, 0), nil},
			"at, the next":         {honkertest.At(soon.Add(2*time.Second), 0), nil},
			"at, before it":        {honkertest.At(soon.Add(-4*time.Second), 4*time.Second), nil},
			"at, within":           {honkertest.At(soon.Add(-4*time.Second), 5*time.Second), []int{2}},
			"at, both":             {honkertest.At(soon, 90*time.Second), []int{1, 2}},
		} {
			var got []int
			for _, found := range honkertest.Enqueued(t, q, c.match) {
				got = append(got, found.Args)
			}
			require.Equal(t, c.want, got, name)
		}
		requireFails(t, func(t testing.TB) {
			honkertest.RequireEnqueued(t, q, 1, honkertest.Priority(2), honkertest.Unique("u"), honkertest.At(soon, 0), honkertest.Header("a", "b"))
		}, `header "a" "", want "b"`, "priority -1, want 2", `unique key "", want "u"`, "due 2000-01-01T00:00:00Z, want 2000-01-01T00:01:30Z")
		requireFails(t, func(t testing.TB) { honkertest.RequireNone(t, q, honkertest.Where(func(string) bool { return false })) },
			"Where takes string, but the arguments of queue \"jobs\" are int")
	})
}

// Jobs count as waiting before they're claimed and between attempts, but not while they are held,
// dead or done.
func TestEnqueued_Waiting(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[string](db, "jobs", nil)
		_, err := q.EnqueueMany(t.Context(), []string{"acked", "dead", "retried", "held"})
		require.NoError(t, err)
		testkit.Enqueue(t, q, "first", honker.Unique("k", nil), honker.Priority(9))
		for _, job := range testkit.Claim(t, q, 5) {
			switch job.Args {
			case "acked":
				require.NoError(t, job.Ack(t.Context()))
			case "dead":
				require.NoError(t, job.Reject(t.Context(), errCause))
			case "retried":
				require.NoError(t, job.Retry(t.Context(), time.Hour, errCause))
			}
		}
		testkit.Enqueue(t, q, "successor", honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain}))
		testkit.Enqueue(t, q, "expired", honker.ExpiresIn(time.Second))
		time.Sleep(2 * time.Second)
		phases := map[string]honker.Phase{}
		for _, found := range honkertest.Enqueued(t, q) {
			job, err := db.Job(t.Context(), found.ID)
			require.NoError(t, err)
			require.Equal(t, *job, found.JobInfo)
			phases[found.Args] = found.Phase
		}
		require.Equal(t, map[string]honker.Phase{"retried": honker.PhaseScheduled, "successor": honker.PhaseHeld, "expired": honker.PhaseExpired}, phases)
		require.Equal(t, errCause.Error(), honkertest.RequireEnqueued(t, q, "retried").LastError)
	})
}

// A payload of the wrong type fails the test and doesn't count as a miss.
func TestEnqueued_Undecodable(t *testing.T) {
	_, db, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, honker.NewQueue[string](db, "jobs", nil), "tea")
	requireFails(t, func(t testing.TB) { honkertest.Enqueued(t, q) }, `"tea"`, "cannot decode")
	requireFails(t, func(t testing.TB) {
		honkertest.RequireEnqueued(t, honker.NewQueue[any](db, "jobs", nil), any(func() {}))
	}, "unsupported type")
}

// Uncommitted jobs are visible only in their transaction.
func TestRequireEnqueuedTx(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 1, honker.Unique("k", nil))
		require.NoError(t, err)
		require.EqualValues(t, 1, honkertest.RequireEnqueuedTx(t, tx, q, 1, honkertest.Unique("k")).ID)
		requireFails(t, func(t testing.TB) { honkertest.RequireEnqueuedTx(t, tx, q, 2) }, "arguments 1, want 2")
		requireFails(t, func(t testing.TB) { honkertest.RequireEnqueued(t, q, 1) }, "0 jobs")
		return nil
	}))
	honkertest.RequireEnqueued(t, q, 1)
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = q.EnqueueTx(ctx, tx, 2)
	require.NoError(t, err)
	honkertest.RequireEnqueuedTx(t, tx, q, 2)
	require.NoError(t, tx.Rollback())
	honkertest.RequireNone(t, q, honkertest.Where(func(n int) bool { return n == 2 }))
}

// base64ed is a Codec that stores payloads in base64.
type base64ed struct{}

func (base64ed) Encode(_ context.Context, _ string, payload json.RawMessage) (json.RawMessage, error) {
	return json.Marshal(map[string][]byte{"text": payload})
}

func (base64ed) Decode(_ context.Context, _ string, stored json.RawMessage) (json.RawMessage, error) {
	var made map[string][]byte
	err := json.Unmarshal(stored, &made)
	return made["text"], err
}

// Arguments are compared as they were enqueued, before the Codec encodes them.
func TestRequireEnqueued_Codec(t *testing.T) {
	q := honker.NewQueue[receipt](honkertest.Open(t, &honker.Options{Codec: base64ed{}}), "receipts", nil)
	testkit.Enqueue(t, q, tea)
	honkertest.RequireEnqueued(t, q, tea)
	requireFails(t, func(t testing.TB) { honkertest.RequireEnqueued(t, q, receipt{}) }, "want")
}

func ExampleRequireEnqueued() {
	_ = func(t *testing.T) { // func TestPlaceOrder(t *testing.T) {
		db := honkertest.Open(t, nil)
		mails := honker.NewQueue[string](db, "mails", nil)
		remind := func(ctx context.Context, to string) { _, _ = mails.Enqueue(ctx, to, honker.Delay(48*time.Hour)) }

		remind(t.Context(), "ada")
		job := honkertest.RequireEnqueued(t, mails, "ada", honkertest.At(time.Now().Add(48*time.Hour), time.Minute))
		fmt.Println(job.MaxAttempts)
		honkertest.RequireNone(t, mails, honkertest.Where(func(to string) bool { return to == "bob" }))
	}
}

package honkertest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// fillGolden fills a database with one object of each kind. The objects created before those only
// make IDs larger and must not change the output.
func fillGolden(t *testing.T, db *honker.DB, before int) {
	ctx := t.Context()
	q, mails := honker.NewQueue[string](db, "jobs", nil), honker.NewQueue[string](db, "mails", nil)
	events := honker.NewStream[string](db, "orders", nil)
	for range before {
		testkit.Enqueue(t, q, "before")
		testkit.Publish(t, events, "before")
	}
	require.Equal(t, before, honkertest.Drain(t, q, testkit.Succeed))
	testkit.Exec(t, db, `DELETE FROM _honker_stream`)

	testkit.ExecAll(t, db.SQL(), `CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL, raw BLOB)`,
		`INSERT INTO orders (item, price, raw) VALUES ('tea', 1.5, x'0f'), ('a "cup"', NULL, NULL)`)
	testkit.Enqueue(t, mails, "ada", honker.Delay(time.Hour), honker.ExpiresIn(2*time.Hour))
	unique := testkit.Enqueue(t, q, "unique", honker.Unique("k", nil), honker.Key("ann"), honker.Priority(-2),
		honker.Headers(map[string]string{"trace": "7", "by": "us"}))
	require.NoError(t, q.SaveResult(ctx, unique, "so far", 0))
	for end, fn := range []honkertest.Handler[string]{
		func(context.Context, *honker.Job[string]) error { return errCause },
		func(context.Context, *honker.Job[string]) error { return honker.Reject(errCause) },
		func(_ context.Context, job *honker.Job[string]) error { return job.SetResult(1) },
		func(context.Context, *honker.Job[string]) error { panic("on fire") },
	} {
		honkertest.Perform(t, q, []string{"fails", "dies", "has a result", "panics"}[end], fn)
	}
	testkit.Enqueue(t, mails, "held by a worker")
	testkit.ClaimOneAs(t, mails, "host-"+time.Now().String())
	_, err := mails.Pause(ctx, &honker.PauseOptions{Reason: "deploy"})
	require.NoError(t, err)

	testkit.Publish(t, events, "first", honker.EventKey("17"))
	testkit.Publish(t, events, "second")
	for e, err := range events.Read(ctx, 0) {
		require.NoError(t, err)
		_, err = events.SaveOffset(ctx, "mailer", e.Offset)
		require.NoError(t, err)
		break
	}
	member, err := events.Group("printers", nil).Join(ctx, "one")
	require.NoError(t, err)
	_, err = member.Claim(ctx, 1)
	require.NoError(t, err)
	_, err = db.Notify(ctx, "news", "hello")
	require.NoError(t, err)
	_, err = db.TryLock(ctx, "migrate", nil)
	require.NoError(t, err)
	testkit.Register(t, db, honker.Schedule{Name: "nightly", Queue: "reports", Spec: "@daily", Payload: 1})
}

// The output doesn't depend on IDs, times or worker IDs.
func TestGolden(t *testing.T) {
	testkit.FileOnly(t)
	for _, before := range []int{0, 5} {
		db := honkertest.Open(t, nil)
		fillGolden(t, db, before)
		honkertest.Golden(t, db, "all", "orders")
	}
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		fillGolden(t, db, 1)
		honkertest.Golden(t, db, "all", "orders")
	})
}

// ownUpdate is a flag that an application's tests might define.
var ownUpdate = flag.Bool("update", false, "write golden files anew")

// Golden honors an -update flag defined by the test.
func TestGolden_OwnFlag(t *testing.T) {
	testkit.FileOnly(t)
	setUpdate(t, false)
	t.Chdir(t.TempDir())
	db := honkertest.Open(t, nil)
	defer func(before bool) { *ownUpdate = before }(*ownUpdate)
	*ownUpdate = true
	honkertest.Golden(t, db, "empty")
	*ownUpdate = false
	honkertest.Golden(t, db, "empty")
}

// setUpdate sets -honkertest.update for the rest of the test.
func setUpdate(t *testing.T, to bool) {
	t.Helper()
	f := flag.Lookup("honkertest.update")
	before := f.Value.String()
	t.Cleanup(func() { require.NoError(t, f.Value.Set(before)) })
	require.NoError(t, f.Value.Set(fmt.Sprint(to)))
}

// Differences are reported line by line. A missing file is reported along with the flag that writes
// it.
func TestGolden_Differs(t *testing.T) {
	testkit.FileOnly(t)
	setUpdate(t, false)
	t.Chdir(t.TempDir())
	_, db, q := testkit.NewQueue[string](t, nil)
	golden := func(t testing.TB) { honkertest.Golden(t, db, "sub/jobs") }
	testkit.Enqueue(t, q, "a")
	testkit.Enqueue(t, q, "b")
	requireFails(t, golden, "testdata/sub/jobs.golden does not exist", "-honkertest.update", `queue jobs: job 1 ready "a"`)

	setUpdate(t, true)
	requirePasses(t, golden)
	setUpdate(t, false)
	requirePasses(t, golden)

	testkit.Claim(t, q, 1)
	requireFails(t, golden, "differs from testdata/sub/jobs.golden (-want +got):\n"+
		`-queue jobs: job 1 ready "a"`+"\n"+`+queue jobs: job 1 running "a", attempt 1 of 25, worker 1`+"\n")
	text, err := os.ReadFile(filepath.Join("testdata", "sub", "jobs.golden"))
	require.NoError(t, err)
	require.Equal(t, "queue jobs: job 1 ready \"a\"\nqueue jobs: job 2 ready \"b\"\n", string(text))
	requireFails(t, func(t testing.TB) { honkertest.Golden(t, db, "jobs", "orders") }, "no such table: orders")
}

// Reordered or repeated lines count as differences, too.
func TestGolden_Order(t *testing.T) {
	testkit.FileOnly(t)
	setUpdate(t, false)
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("testdata", 0o777))
	_, db, q := testkit.NewQueue[int](t, nil)
	for range 2 {
		testkit.Enqueue(t, honker.NewQueue[int](db, "others", nil), 1)
		testkit.Enqueue(t, q, 1)
	}
	for text, fault := range map[string]string{
		"queue jobs: job 2 ready 1\nqueue jobs: job 4 ready 1\r\nqueue others: job 1 ready 1\nqueue others: job 3 ready 1\n": "",
		"queue jobs: job 4 ready 1\nqueue jobs: job 2 ready 1\nqueue others: job 1 ready 1\nqueue others: job 3 ready 1\n":   "another order",
		"queue jobs: job 2 ready 1\nqueue others: job 1 ready 1\nqueue others: job 3 ready 1\n":                              "+queue jobs: job 4 ready 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join("testdata", "jobs.golden"), []byte(text), 0o666))
		failure := failureOf(t, func(t testing.TB) { honkertest.Golden(t, db, "jobs") })
		require.Contains(t, failure, fault)
		require.Equal(t, fault == "", failure == "")
	}
}

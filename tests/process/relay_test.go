//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

func init() {
	children["relay"] = func() { relayAndNote(nil) }
	children["relay without a poll"] = func() { relayAndNote(&honker.Options{PollInterval: time.Hour}) }
	children["moody relay"] = relayMoodily
	children["slow relay"] = relayOnDemand
	children["other relay"] = relayOtherPartitions
}

const hookPartitions = 16

func carried(m *relay.Message) int64 {
	n, err := strconv.ParseInt(string(m.Payload), 10, 64)
	testkit.Must(err)
	return n
}

// relayAndNote handles hooks and notes them. It also prints them unless the task is quiet.
func relayAndNote(o *honker.Options) {
	a := testkit.ChildArgs[testkit.Task]()
	db, err := honker.Open(context.Background(), a.Path, o)
	testkit.Must(err)
	note := testkit.ChildLedger(a.Ledger)
	r := relay.New(db, &relay.Options{Observer: testkit.RelayObserver(note)})
	r.Queue("hooks", hookPartitions).Handle(func(_ context.Context, m *relay.Message) error {
		testkit.NoteGiven(note, m, carried(m))
		if !a.Quiet {
			testkit.Say(carried(m))
		}
		return nil
	}, relay.Lease(a.Span, a.Span/4))
	testkit.Must(r.Run(testkit.ChildContext()))
	testkit.Must(db.Close())
}

// hooks is a relay queue with the numbers sent to each partition, in order.
type hooks struct {
	*relay.Queue
	sent [hookPartitions][]int64
	last int64
}

func newHooks(db *honker.DB) *hooks {
	return &hooks{Queue: relay.New(db, nil).Queue("hooks", hookPartitions)}
}

// next returns the next n messages, distributed over the partitions in turn.
func (h *hooks) next(n int) (all []relay.Outgoing) {
	for range n {
		h.last++
		p := int(h.last % hookPartitions)
		h.sent[p] = append(h.sent[p], h.last)
		all = append(all, relay.Outgoing{Partition: p, Payload: []byte(strconv.FormatInt(h.last, 10))})
	}
	return all
}

func (h *hooks) send(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		some := min(n, 200)
		_, err := h.Send(context.Background(), h.next(some)...)
		require.NoError(t, err)
		n -= some
	}
}

// processed returns the number of finished messages of all partitions.
func (h *hooks) processed(t *testing.T) (n int64) {
	t.Helper()
	info, err := h.Info(context.Background())
	require.NoError(t, err)
	for _, p := range info.Partitions {
		n += p.Processed
	}
	return n
}

func (h *hooks) waitForAll(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 3*testkit.Timeout, "all messages finished", func() bool { return h.processed(t) == h.last })
}

// compare checks that the ledgers contain the sent messages, and returns their history.
func (h *hooks) compare(t *testing.T, ledgers string) *testkit.RelayHistory {
	t.Helper()
	history, err := testkit.ReadRelayHistory(ledgers)
	require.NoError(t, err)
	for p, sent := range h.sent {
		require.Equal(t, sent, history.Numbers[testkit.RelayPartition{Queue: "hooks", Partition: p}], "partition %d", p)
	}
	return history
}

func hasNotes(ledger string) bool {
	info, err := os.Stat(ledger)
	return err == nil && info.Size() > 0
}

// Two processes share the partitions. Each message is delivered once and in order.
func TestRelay_Process_Shared(t *testing.T) {
	messages := 20_000
	if testing.Short() {
		messages = 2000
	}
	path, db := openShared(t)
	h := newHooks(db)
	var relays [2]*testkit.Child
	var ledgers [2]string
	for i := range relays {
		ledgers[i] = filepath.Join(filepath.Dir(path), fmt.Sprint("relay-", i))
		relays[i] = testkit.StartChild(t, "relay", testkit.Task{Path: path, Ledger: ledgers[i], Span: time.Minute, Quiet: true})
	}
	h.send(t, messages/2)
	testkit.Eventually(t, testkit.Timeout, "both at work", func() bool {
		h.send(t, 100)
		return hasNotes(ledgers[0]) && hasNotes(ledgers[1])
	})
	h.send(t, messages/2)
	h.waitForAll(t)
	for _, r := range relays {
		require.Empty(t, r.End())
	}
	history := h.compare(t, filepath.Join(filepath.Dir(path), "relay-*"))
	require.Zero(t, history.Again, "messages that were delivered twice")
	require.Zero(t, history.Lost)
	t.Logf("%d messages", h.last)
}

// When processes are killed, no message is lost and each partition stays in order. Redelivery
// begins after the last saved progress.
func TestRelay_Process_Killed(t *testing.T) {
	const lease = time.Second
	kills := 15
	if testing.Short() {
		kills = 4
	}
	path, db := openShared(t)
	h := newHooks(db)
	h.send(t, 200)
	var relays [2]*testkit.Child
	started := 0
	start := func(i int) {
		started++
		relays[i] = testkit.StartChild(t, "relay", testkit.Task{
			Path: path, Ledger: filepath.Join(filepath.Dir(path), fmt.Sprint("relay-", started)), Span: lease, Quiet: true,
		})
	}
	start(0)
	start(1)
	for i := range kills {
		before := h.processed(t)
		h.send(t, 400)
		testkit.Eventually(t, testkit.Timeout, "some more messages finished", func() bool { return h.processed(t) >= before+int64(20+7*i) })
		relays[i%2].Kill() // while the other relay is busy
		start(i % 2)
	}
	h.waitForAll(t)
	for _, r := range relays {
		require.Empty(t, r.End())
	}
	history := h.compare(t, filepath.Join(filepath.Dir(path), "relay-*"))
	t.Logf("%d messages, %d delivered again, %d leases lost", h.last, history.Again, history.Lost)
}

// relayMoodily inserts a row for each message in the transaction of the progress, and then ends in
// a random way.
func relayMoodily() {
	a, db := testkit.OpenChild(nil)
	luck := testkit.Rand(a.Seed, 1)
	r := relay.New(db, &relay.Options{Processors: 1, RetryBase: time.Millisecond, RetryMax: 5 * time.Millisecond})
	r.Queue("hooks", hookPartitions).HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO audited VALUES ($1, $2, $3)`, m.Partition, m.Seq, carried(m)); err != nil {
			return err
		}
		switch luck.IntN(60) {
		case 0:
			return relay.RetryAfter(0, errors.New("not yet"))
		case 1:
			return errors.New("not now")
		case 2:
			return relay.Reject(errors.New("never"))
		case 3:
			panic("oh")
		case 4:
			<-ctx.Done() // too slow
			return ctx.Err()
		}
		return nil
	}, relay.Lease(time.Second, time.Second/4), relay.TxTimeout(50*time.Millisecond))
	testkit.Must(r.Run(testkit.ChildContext()))
	testkit.Must(db.Close())
}

// Each message that was not rejected has exactly one row, in the order of its partition, however
// the handlers end and however often the process is killed.
func TestRelay_HandleTx_Process_Killed(t *testing.T) {
	messages, kills := 2000, 20
	if testing.Short() {
		messages, kills = 500, 4
	}
	path, db := openShared(t)
	luck := testkit.Rand(testkit.Seed(t), 0)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE audited (partition BIGINT, seq BIGINT, number BIGINT)`)
	h := newHooks(db)
	h.send(t, messages)
	var relays [2]*testkit.Child
	start := func(i int) {
		relays[i] = testkit.StartChild(t, "moody relay", testkit.Task{Path: path, Seed: luck.Uint64()})
	}
	start(0)
	start(1)
	for i := range kills {
		goal := min(h.processed(t)+1+luck.Int64N(int64(messages/kills)), int64(messages-1))
		testkit.Eventually(t, testkit.Timeout, "some more are finished", func() bool { return h.processed(t) >= goal })
		beyond := testkit.QueryInt(t, db.SQL(), testkit.Either(`SELECT (SELECT count(*) FROM audited) + (SELECT count(*) FROM _honkerx_relay_dead)
  - (SELECT sum(processed) FROM _honkerx_relay_partitions)`, `SELECT (SELECT count(*) FROM audited) + (SELECT count(*) FROM relay_dead)
  - (SELECT sum(processed)::bigint FROM relay_partition)`))
		require.Zero(t, beyond, "the audit is what was processed, at any time")
		relays[i%2].Kill()
		start(i % 2)
	}
	h.waitForAll(t)
	for _, r := range relays {
		require.Empty(t, r.End())
	}
	letters := testkit.Either(`_honkerx_relay_dead`, `relay_dead`)
	dead := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM `+letters+` WHERE last_error LIKE '%never%'`)
	require.Positive(t, dead)
	require.Equal(t, dead, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM `+letters), "none died of anything else")
	payload := testkit.Either(`CAST(payload AS INTEGER)`, `convert_from(payload, 'UTF8')::bigint`)
	for p, sent := range h.sent {
		rows, err := testkit.Rows(db.SQL(), `SELECT seq, number FROM audited WHERE partition = $1
UNION ALL SELECT seq, `+payload+` FROM `+letters+` WHERE partition = $1 ORDER BY 1`, p)
		require.NoError(t, err)
		var want []string
		for i, n := range sent {
			want = append(want, fmt.Sprintf("%d|%d", i+1, n))
		}
		require.Equal(t, want, rows, "partition %d", p)
	}
}

// relayOnDemand finishes a message for each line that it reads, and reports the outcome.
func relayOnDemand() {
	a, db := testkit.OpenChild(nil)
	r := relay.New(db, &relay.Options{Observer: &relay.Observer{
		Finished:  func(e relay.Finished) { testkit.Say("saved", e.Epoch, e.Processed) },
		LeaseLost: func(e relay.LeaseLost) { testkit.Say("lost", e.Epoch) },
	}})
	r.Queue("hooks", hookPartitions).Handle(func(_ context.Context, m *relay.Message) error {
		testkit.Say("given", m.Epoch, m.Seq)
		testkit.ReadLine()
		return nil
	}, relay.Lease(a.Span, a.Span/4))
	testkit.Must(r.Run(testkit.ChildContext()))
	testkit.Must(db.Close())
}

// stopBesideWrites suspends a child while it does not hold the write lock, or has no transaction on a
// server. A process suspended with the lock would block all writers.
func stopBesideWrites(t *testing.T, path string, p *testkit.Child) {
	t.Helper()
	if !testkit.OnFile() {
		stopBesideTransactions(t, path, p)
		return
	}
	pool, err := sql.Open("sqlite", path+"?_txlock=immediate")
	require.NoError(t, err)
	defer pool.Close()
	testkit.Eventually(t, testkit.Timeout, "stopped without the write lock", func() bool {
		p.Stop()
		tx, err := pool.BeginTx(context.Background(), nil)
		if err != nil {
			require.ErrorContains(t, err, "locked")
			p.Cont()
			return false
		}
		require.NoError(t, tx.Rollback())
		return true
	})
}

func stopBesideTransactions(t *testing.T, path string, p *testkit.Child) {
	t.Helper()
	pool := testkit.OpenPool(t, path)
	testkit.Eventually(t, testkit.Timeout, "stopped without a transaction", func() bool {
		p.Stop()
		if testkit.QueryInt(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND xact_start IS NOT NULL AND backend_type = 'client backend'`) == 0 {
			return true
		}
		p.Cont()
		return false
	})
}

// A process that is suspended beyond its lease cannot save its progress. Its messages are delivered
// twice, and nothing else happens.
func TestRelay_Process_Stopped(t *testing.T) {
	path, db := openShared(t)
	stale := testkit.StartChild(t, "slow relay", testkit.Task{Path: path, Span: time.Minute})
	r := relay.New(db, nil)
	q := r.Queue("hooks", hookPartitions)
	_, err := q.Send(context.Background(), relay.Outgoing{})
	require.NoError(t, err)
	require.Equal(t, "given 1 1", stale.Line(testkit.Timeout))
	stopBesideWrites(t, path, stale)
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_relay_partitions SET lease_until_ms = 0`, `UPDATE relay_partition SET lease_until = to_timestamp(0) WHERE lease_until IS NOT NULL`))
	_, err = q.Send(context.Background(), relay.Outgoing{}, relay.Outgoing{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
	var given []string
	q.Handle(func(_ context.Context, m *relay.Message) error {
		given = append(given, fmt.Sprint(m.Epoch, " ", m.Seq, " ", m.Attempt))
		if m.Seq == 1 {
			stale.Cont()
			stale.Tell("go on")
			assert.Equal(t, "lost 1", stale.Line(testkit.Timeout))
		}
		if m.Seq == 3 {
			stop()
		}
		return nil
	})
	require.NoError(t, r.Run(ctx))
	require.Equal(t, []string{"2 1 1", "3 2 0", "3 3 0"}, given, "after a take without progress, a batch has one message")
	require.Empty(t, stale.End())
	info, err := q.Info(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, []int64{3, 3, 3}, []int64{info.Partitions[0].Seq, info.Partitions[0].Processed, info.Partitions[0].Epoch})
}

var errRefused = errors.New("refused")

// hearEach sends messages in several ways. It sends each message after a child has handled the
// previous message.
func hearEach(t *testing.T, child string, ways func(h *hooks, db *honker.DB, path string) map[string]func(context.Context, relay.Outgoing) error) {
	path, db := openShared(t)
	ctx := testkit.Context(t, 3*testkit.Timeout)
	ledger := filepath.Join(filepath.Dir(path), "relay-0")
	p := testkit.StartChild(t, child, testkit.Task{Path: path, Ledger: ledger, Span: time.Minute})
	h := newHooks(db)
	h.send(t, 1) // creates the queue in the file
	require.Equal(t, "1", p.Line(testkit.Timeout))
	all := ways(h, db, path)
	for range hookPartitions {
		for name, way := range all {
			require.NoError(t, way(ctx, h.next(1)[0]), name)
			require.Equal(t, fmt.Sprint(h.last), p.Line(testkit.Timeout), name)
		}
	}
	h.waitForAll(t)
	require.Empty(t, p.End())
	require.Zero(t, h.compare(t, ledger).Again)
}

// A relay is woken by the sends of another process without polling. A transaction that is rolled
// back leaves no gap in the sequence.
func TestRelay_Process_Wake(t *testing.T) {
	hearEach(t, "relay without a poll", func(h *hooks, db *honker.DB, _ string) map[string]func(context.Context, relay.Outgoing) error {
		return map[string]func(context.Context, relay.Outgoing) error{
			"Send": func(ctx context.Context, m relay.Outgoing) error { _, err := h.Send(ctx, m); return err },
			"SendTx": func(ctx context.Context, m relay.Outgoing) error {
				if err := sendInTx(ctx, db, h, m, errRefused); !errors.Is(err, errRefused) {
					return fmt.Errorf("a transaction to be rolled back: %w", err)
				}
				return sendInTx(ctx, db, h, m, nil)
			},
		}
	})
}

func sendInTx(ctx context.Context, db *honker.DB, h *hooks, m relay.Outgoing, outcome error) error {
	return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := h.SendTx(ctx, tx, m)
		return errors.Join(err, outcome)
	})
}

// Another program can send a message by a plain INSERT. A transaction that is rolled back leaves no
// gap in the sequence.
func TestRelay_Process_Insert(t *testing.T) {
	testkit.FileOnly(t) // a server has no other bindings
	const insert = `INSERT INTO _honkerx_relay_messages (queue, partition, payload) VALUES ('hooks', ?, ?)`
	hearEach(t, "relay", func(_ *hooks, _ *honker.DB, path string) map[string]func(context.Context, relay.Outgoing) error {
		plain := testkit.OpenBinding(t, path).Pool
		return map[string]func(context.Context, relay.Outgoing) error{
			"INSERT": func(ctx context.Context, m relay.Outgoing) error {
				_, err := plain.ExecContext(ctx, insert, m.Partition, m.Payload)
				return err
			},
			"INSERT after a rollback": func(ctx context.Context, m relay.Outgoing) error {
				for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
					tx, err := plain.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					_, err = tx.ExecContext(ctx, insert, m.Partition, m.Payload)
					if err := errors.Join(err, end(tx)); err != nil {
						return err
					}
				}
				return nil
			},
		}
	})
}

// relayOtherPartitions uses the queue with a different number of partitions and reports the errors.
func relayOtherPartitions() {
	_, db := testkit.OpenChild(nil)
	r := relay.New(db, nil)
	q := r.Queue("hooks", 2*hookPartitions)
	q.Handle(func(context.Context, *relay.Message) error { return nil })
	_, err := q.Send(context.Background(), relay.Outgoing{})
	testkit.Say(errors.Is(err, relay.ErrPartitions), errors.Is(r.Run(testkit.ChildContext()), relay.ErrPartitions))
	testkit.Must(db.Close())
}

// A process with a different number of partitions is refused and changes nothing.
func TestRelay_Process_Partitions(t *testing.T) {
	path, db := openShared(t)
	h := newHooks(db)
	h.send(t, 1)
	other := testkit.StartChild(t, "other relay", testkit.Task{Path: path})
	require.Equal(t, "true true", other.Line(testkit.Timeout))
	require.Empty(t, other.End())
	require.Zero(t, h.processed(t))
	partitions, err := testkit.Rows(db.SQL(), testkit.ListProcessed)
	require.NoError(t, err)
	require.Len(t, partitions, hookPartitions)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountMessages))
}

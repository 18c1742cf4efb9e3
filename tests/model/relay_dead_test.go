package model_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// deadModel models the dead letters of a relay queue, with a resolution of a millisecond:
//
//   - Replay takes dead letters that are pending, or whose hold has ended. It takes those never
//     taken before first, by id, then the others by the time of their last hold.
//   - Only the replayer that has taken a dead letter can resolve or reject it, until the last
//     millisecond of its hold.
//   - Reject makes it pending again, with another attempt and the cause as its last error.
//   - Requeue and Discard affect only dead letters that Replay could take. A requeued dead letter
//     becomes the last message of its partition.
//   - CleanupDead deletes dead letters that were resolved or discarded long enough ago.
type deadModel struct {
	dead      map[int64]*modelDead
	waiting   map[int][]string // payloads of the messages of each partition
	processed map[int]int64
}

type modelDead struct {
	id, seq   int64
	partition int
	kind      string
	payload   string
	state     relay.DeadState
	attempts  int
	cause     string
	died      time.Time
	until     time.Time // end of the hold, or time of the return or of the settlement
	taken     int       // number of the Replay that has taken it
}

func (d *modelDead) free(now time.Time) bool {
	return d.state == relay.DeadPending || d.state == relay.DeadReplaying && d.until.Before(now)
}

func (d *modelDead) settled() bool {
	return d.state == relay.DeadResolved || d.state == relay.DeadDiscarded
}

// some returns the dead letters accepted by ok, by id.
func (m *deadModel) some(ok func(*modelDead) bool) (found []*modelDead) {
	for _, d := range m.dead {
		if ok(d) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b *modelDead) int { return cmp.Compare(a.id, b.id) })
	return found
}

// replay returns the expected result of Replay.
func (m *deadModel) replay(f *relay.DeadFilter, n, taken int, hold time.Duration) (out []modelDead) {
	now := time.Now()
	free := m.some(func(d *modelDead) bool { return d.free(now) && selects(f, d) })
	slices.SortStableFunc(free, func(a, b *modelDead) int { return a.until.Compare(b.until) })
	for _, d := range free[:min(n, len(free))] {
		d.state, d.until, d.taken = relay.DeadReplaying, now.Add(hold), taken
		out = append(out, *d)
	}
	return out
}

// deadMachine drives the dead letters of a queue and their model.
type deadMachine struct {
	deadModel
	ctx         context.Context
	db          *honker.DB
	queues      []*relay.Queue // the same queue, opened by two replayers
	first, last int64          // range of the sent ids
	taken       []*relay.DeadMessage
	takes       map[*relay.DeadMessage]int // number of the Replay that returned it
	replays     int
	met         map[string]int
}

// Die sends a message and makes the first message of its partition a dead letter, as a processor
// would.
func (m *deadMachine) Die(t *rapid.T) {
	partition, kind := rapid.IntRange(0, 1).Draw(t, "partition"), deadTypes.Draw(t, "type")
	payload := fmt.Sprint(m.last)
	ids, err := m.replayer(t).Send(m.ctx, relay.Outgoing{Partition: partition, Type: kind, Payload: []byte(payload)})
	require.NoError(t, err)
	if m.first == 0 {
		m.first = ids[0]
	}
	m.last = ids[0]
	m.waiting[partition] = append(m.waiting[partition], payload)
	m.processed[partition]++

	now := time.Now()
	d := &modelDead{partition: partition, seq: m.processed[partition], state: relay.DeadPending, attempts: 1, cause: "down", died: now}
	require.NoError(t, m.db.Tx(m.ctx, func(ctx context.Context, tx *sql.Tx) error {
		queue := m.queues[0].Name()
		err := tx.QueryRowContext(ctx, on(`INSERT INTO _honkerx_relay_dead
  (id, queue, partition, seq, type, payload, created_ms, attempts, last_error, died_ms)
SELECT id, queue, partition, $3, type, payload, created_ms, 1, 'down', $4 FROM _honkerx_relay_messages WHERE queue = $1 AND partition = $2
ORDER BY id LIMIT 1 RETURNING id, type, payload`, `INSERT INTO relay_dead
  (id, family, queue, partition, seq, key, type, payload, created_at, attempts, last_error, died_at)
SELECT id, family, queue, partition, $3::bigint, key, type, payload, created_at, 1, 'down', to_timestamp($4::bigint / 1000.0)
FROM relay_message WHERE queue = $1 AND partition = $2 ORDER BY id LIMIT 1 RETURNING id, type, payload`), queue, partition, d.seq, now.UnixMilli()).
			Scan(&d.id, &d.kind, &d.payload)
		if err == nil {
			_, err = tx.ExecContext(ctx, on(`UPDATE _honkerx_relay_partitions SET processed = processed + 1, cursor = $3 WHERE queue = $1 AND partition = $2`,
				`UPDATE relay_partition SET processed = processed + 1, cursor = $3 WHERE queue = $1 AND partition = $2`), queue, partition, d.id)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, on(`DELETE FROM _honkerx_relay_messages WHERE id = $1`, `DELETE FROM relay_message WHERE id = $1`), d.id)
		}
		return err
	}))
	require.Equal(t, m.waiting[partition][0], d.payload)
	m.waiting[partition] = m.waiting[partition][1:]
	m.dead[d.id] = d
}

var (
	deadTypes  = rapid.SampledFrom([]string{"text/plain", "application/json"})
	deadStates = rapid.SampledFrom([]relay.DeadState{"", relay.DeadPending, relay.DeadReplaying, relay.DeadResolved, relay.DeadDiscarded})
	moments    = rapid.SampledFrom([]time.Duration{0, time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second})
)

// filter draws a filter for the dead letters, or nil.
func (m *deadMachine) filter(t *rapid.T, states *rapid.Generator[relay.DeadState]) *relay.DeadFilter {
	if rapid.Bool().Draw(t, "all") {
		return nil
	}
	f := &relay.DeadFilter{State: states.Draw(t, "state")}
	if rapid.Bool().Draw(t, "partition?") {
		p := rapid.IntRange(0, 1).Draw(t, "partition")
		f.Partition = &p
	}
	if rapid.Bool().Draw(t, "type?") {
		f.Type = deadTypes.Draw(t, "type")
	}
	if rapid.Bool().Draw(t, "since?") {
		f.Since = time.Now().Add(-moments.Draw(t, "since")).Truncate(time.Millisecond)
	}
	return f
}

func selects(f *relay.DeadFilter, d *modelDead) bool {
	return f == nil || (f.Partition == nil || *f.Partition == d.partition) && (f.Type == "" || f.Type == d.kind) &&
		(f.State == "" || f.State == d.state) && !d.died.Before(f.Since)
}

func (m *deadMachine) replayer(t *rapid.T) *relay.Queue {
	return rapid.SampledFrom(m.queues).Draw(t, "replayer")
}

func (m *deadMachine) Replay(t *rapid.T) {
	free := rapid.SampledFrom([]relay.DeadState{"", "", relay.DeadPending, relay.DeadReplaying})
	n, hold, f := rapid.IntRange(1, 4).Draw(t, "n"), moments.Draw(t, "hold")+time.Millisecond, m.filter(t, free)
	got, err := m.replayer(t).Replay(m.ctx, n, hold, f)
	require.NoError(t, err)
	m.replays++
	want := m.replay(f, n, m.replays, hold)
	require.Len(t, got, len(want))
	for i, d := range got {
		m.same(t, want[i], d)
		m.takes[d] = m.replays
		m.met[fmt.Sprint("taken ", min(want[i].attempts, 2))]++
	}
	m.taken = append(m.taken, got...)
}

// settle calls a method of a dead letter returned by any Replay. It chooses a held dead letter most
// of the time.
func (m *deadMachine) settle(t *rapid.T, verb string, real func(*relay.DeadMessage) error, model func(*modelDead)) {
	held := func(d *relay.DeadMessage) *modelDead {
		of := m.dead[d.ID]
		if of == nil || of.state != relay.DeadReplaying || of.taken != m.takes[d] || of.until.Before(time.Now()) {
			return nil
		}
		return of
	}
	from := slices.DeleteFunc(slices.Clone(m.taken), func(d *relay.DeadMessage) bool { return held(d) == nil })
	if rapid.IntRange(0, 3).Draw(t, "any") == 3 {
		from = m.taken
	}
	if len(from) == 0 {
		t.Skip("nothing is held")
	}
	d := rapid.SampledFrom(from).Draw(t, "dead letter")
	of := held(d)
	err := real(d)
	if of == nil {
		require.ErrorIs(t, err, honker.ErrClaimLost, verb)
		m.met["stale"]++
		return
	}
	require.NoError(t, err, verb)
	model(of)
	of.until = time.Now()
	m.met[verb]++
}

func (m *deadMachine) Resolve(t *rapid.T) {
	m.settle(t, "resolve", func(d *relay.DeadMessage) error { return d.Resolve(m.ctx) },
		func(d *modelDead) { d.state = relay.DeadResolved })
}

func (m *deadMachine) Reject(t *rapid.T) {
	cause := rapid.SampledFrom([]error{nil, testkit.ErrCause, errors.New("out of paper")}).Draw(t, "cause")
	m.settle(t, "reject", func(d *relay.DeadMessage) error { return d.Reject(m.ctx, cause) },
		func(d *modelDead) {
			d.state, d.cause = relay.DeadPending, ""
			d.attempts++
			if cause != nil {
				d.cause = cause.Error()
			}
		})
}

// ids draws some ids, with duplicates and unknown ids.
func (m *deadMachine) ids(t *rapid.T) []int64 {
	return rapid.SliceOfN(rapid.Int64Range(m.first, m.last+1), 0, 4).Draw(t, "ids")
}

// free returns the dead letters of ids that Replay could take.
func (m *deadMachine) free(ids []int64) []*modelDead {
	return m.some(func(d *modelDead) bool { return slices.Contains(ids, d.id) && d.free(time.Now()) })
}

func (m *deadMachine) Requeue(t *rapid.T) {
	ids := m.ids(t)
	n, err := m.replayer(t).Requeue(m.ctx, ids...)
	require.NoError(t, err)
	free := m.free(ids)
	require.Len(t, free, n)
	for _, d := range free {
		delete(m.dead, d.id)
		m.waiting[d.partition] = append(m.waiting[d.partition], d.payload)
		m.met["requeued"]++
	}
}

func (m *deadMachine) Discard(t *rapid.T) {
	ids := m.ids(t)
	n, err := m.replayer(t).Discard(m.ctx, ids...)
	require.NoError(t, err)
	free := m.free(ids)
	require.Len(t, free, n)
	for _, d := range free {
		d.state, d.until = relay.DeadDiscarded, time.Now()
		m.met["discarded"]++
	}
}

func (m *deadMachine) Cleanup(t *rapid.T) {
	age := moments.Draw(t, "age")
	n, err := m.replayer(t).CleanupDead(m.ctx, age)
	require.NoError(t, err)
	old := m.some(func(d *modelDead) bool { return d.settled() && !d.until.After(time.Now().Add(-age)) })
	require.Len(t, old, n)
	for _, d := range old {
		delete(m.dead, d.id)
		m.met["cleaned"]++
	}
}

func (m *deadMachine) Advance(t *rapid.T) { time.Sleep(moments.Draw(t, "for")) }

// same compares a dead letter with its model.
func (m *deadMachine) same(t *rapid.T, want modelDead, d *relay.DeadMessage) {
	got := modelDead{
		id: d.ID, seq: d.Seq, partition: d.Partition, kind: d.Type, payload: string(d.Payload), state: d.State,
		attempts: d.Attempt, cause: d.LastError, died: d.DiedAt, until: want.until, taken: want.taken,
	}
	require.True(t, want.died.Equal(got.died))
	got.died = want.died
	require.Equal(t, want, got)
	var hold, settled time.Time
	switch want.state {
	case relay.DeadReplaying:
		hold = want.until
	case relay.DeadResolved, relay.DeadDiscarded:
		settled = want.until
	}
	require.True(t, hold.Equal(d.HoldUntil), "%v, not %v", d.HoldUntil, hold)
	require.True(t, settled.Equal(d.SettledAt), "%v, not %v", d.SettledAt, settled)
}

// Check compares the observable state, using a random filter.
func (m *deadMachine) Check(t *rapid.T) {
	f := m.filter(t, deadStates)
	want := m.some(func(d *modelDead) bool { return selects(f, d) })
	q := m.replayer(t)
	n, err := q.CountDead(m.ctx, f)
	require.NoError(t, err)
	require.EqualValues(t, len(want), n)
	for d, err := range q.Dead(m.ctx, f) {
		require.NoError(t, err)
		require.NotEmpty(t, want)
		m.same(t, *want[0], d)
		want = want[1:]
	}
	require.Empty(t, want)

	info, err := q.Info(m.ctx)
	require.NoError(t, err)
	require.EqualValues(t, len(m.some(func(d *modelDead) bool { return !d.settled() })), info.Dead)
	for p, got := range info.Partitions {
		require.EqualValues(t, len(m.waiting[p]), got.Waiting)
		require.Equal(t, m.processed[p], got.Processed)
		require.Equal(t, got.Processed+got.Waiting, got.Seq)
	}
}

// TestRelay_Dead_Model compares random operations on dead letters with the model.
func TestRelay_Dead_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "honker.db")
		dbs := []*honker.DB{honkertest.OpenFile(t, path, nil), honkertest.OpenFile(t, path, nil)}
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++
			m := &deadMachine{ctx: context.Background(), db: dbs[0], met: met, takes: map[*relay.DeadMessage]int{},
				deadModel: deadModel{dead: map[int64]*modelDead{}, waiting: map[int][]string{}, processed: map[int]int64{}}}
			for _, db := range dbs {
				m.queues = append(m.queues, relay.New(db, nil).Queue(fmt.Sprint("queue", checks), 2))
			}
			actions := rapid.StateMachineActions(m)
			actions["Die more"], actions["Replay more"], actions["Reject more"] = m.Die, m.Replay, m.Reject
			for range 4 { // rapid runs few steps per Repeat
				t.Repeat(actions)
			}
		})
	})
	requireMet(t, met, strings.Split("resolve,reject,requeued,discarded,cleaned,stale,taken 1,taken 2", ",")...)
}

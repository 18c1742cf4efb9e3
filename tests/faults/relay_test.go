//go:build unix

package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/tests/faultvfs"
)

// relayOnDisk is a relay on a faultvfs.Disk. It records the messages given to its handler.
type relayOnDisk struct {
	*faultvfs.Disk
	db     *honker.DB
	relay  *relay.Relay
	queue  *relay.Queue
	mu     sync.Mutex
	given  []int64
	failed atomic.Int64 // failed calls
}

func newRelayOnDisk(t *testing.T) *relayOnDisk {
	t.Helper()
	dir := t.TempDir()
	disk, err := faultvfs.New(dir)
	require.NoError(t, err)
	db, err := honker.Open(context.Background(), filepath.Join(dir, "app.db"),
		&honker.Options{Durability: honker.Full, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, db.Check(context.Background()))
		require.NoError(t, db.Close())
		disk.Remove()
	})
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (seq INTEGER)`)
	r := relay.New(db, &relay.Options{RetryBase: time.Millisecond})
	d := &relayOnDisk{Disk: disk, db: db, relay: r, queue: r.Queue("hooks", 1)}
	_, err = d.queue.Send(context.Background(), make([]relay.Outgoing, 5)...)
	require.NoError(t, err)
	return d
}

// refuse makes calls of a kind fail: the given number of times, or always if times is 0.
func (d *relayOnDisk) refuse(kind faultvfs.Kind, code int32, times int64) {
	d.Fail(func(c faultvfs.Call) int32 {
		if c.Kind != kind || times > 0 && d.failed.Load() == times {
			return 0
		}
		d.failed.Add(1)
		return code
	})
}

func (d *relayOnDisk) note(m *relay.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.given = append(d.given, m.Seq)
}

func (d *relayOnDisk) seqs() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.given)
}

func (d *relayOnDisk) processed(t *testing.T) int64 {
	t.Helper()
	return testkit.QueryInt(t, d.db.SQL(), `SELECT processed FROM _honkerx_relay_partitions`)
}

func (d *relayOnDisk) waitForAll(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, "all messages finished", func() bool { return d.processed(t) == 5 })
}

// refusals lists the ways in which a disk rejects a write.
var refusals = map[string]struct {
	kind faultvfs.Kind
	code int32
}{
	"full":     {faultvfs.Write, faultvfs.Full},
	"no write": {faultvfs.Write, faultvfs.Write.Code()},
	"no sync":  {faultvfs.Sync, faultvfs.Sync.Code()},
}

// While the disk rejects writes, a relay takes no partition and does not spin. It continues when
// writes succeed again.
func TestRelay_DiskFails_Take(t *testing.T) {
	for name, f := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newRelayOnDisk(t)
			d.queue.Handle(func(_ context.Context, m *relay.Message) error { d.note(m); return nil })
			d.refuse(f.kind, f.code, 0)
			stop := testkit.Background(t, d.relay.Run)
			testkit.Eventually(t, testkit.Timeout, "some tries", func() bool { return d.failed.Load() >= 3 })
			require.Less(t, d.failed.Load(), int64(50), "it does not spin")
			require.Equal(t, "[]", d.seqs())
			_, err := d.queue.Send(context.Background(), relay.Outgoing{})
			require.ErrorContains(t, err, `relay send "hooks"`)
			d.Fail(nil)
			testkit.Eventually(t, testkit.Timeout, "all messages finished", func() bool { return d.processed(t) >= 5 })
			require.NoError(t, stop())
			require.Contains(t, d.seqs(), "[1 2 3 4 5")
		})
	}
}

// If saving fails after a handler has returned, the relay saves again later. Messages are not
// delivered twice, and dead letters and transactional effects are stored once.
func TestRelay_DiskFails_Save(t *testing.T) {
	for name, f := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newRelayOnDisk(t)
			d.queue.Handle(func(_ context.Context, m *relay.Message) error {
				d.note(m)
				if m.Seq == 2 {
					d.refuse(f.kind, f.code, 2)
					return relay.Reject(errors.New("never"))
				}
				return nil
			})
			stop := testkit.Background(t, d.relay.Run)
			d.waitForAll(t)
			require.NoError(t, stop())
			require.EqualValues(t, 2, d.failed.Load())
			require.Equal(t, "[1 2 3 4 5]", d.seqs())
			require.EqualValues(t, 1, testkit.QueryInt(t, d.db.SQL(), `SELECT count(*) FROM _honkerx_relay_dead WHERE seq = 2`))
		})
	}
}

// If the transaction of a batch fails, its handlers run again. The effects and the progress are
// stored once.
func TestRelay_HandleTx_DiskFails(t *testing.T) {
	for name, f := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newRelayOnDisk(t)
			var once sync.Once
			d.queue.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
				d.note(m)
				if m.Seq == 3 {
					once.Do(func() { d.refuse(f.kind, f.code, 2) })
				}
				_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, m.Seq)
				return err
			}, relay.MaxAttempts(1)) // disk failures do not count as attempts of the message
			stop := testkit.Background(t, d.relay.Run)
			d.waitForAll(t)
			require.NoError(t, stop())
			require.EqualValues(t, 2, d.failed.Load())
			effects, err := testkit.Rows(d.db.SQL(), `SELECT seq FROM effects ORDER BY rowid`)
			require.NoError(t, err)
			require.Equal(t, []string{"1", "2", "3", "4", "5"}, effects)
			require.Zero(t, testkit.QueryInt(t, d.db.SQL(), `SELECT count(*) FROM _honkerx_relay_dead`))
		})
	}
}

// If the disk fails for longer than the lease, Run returns without an error although it could not
// save its progress. The next Run continues in order from the last saved message.
func TestRelay_DiskFails_Drain(t *testing.T) {
	t.Parallel()
	d := newRelayOnDisk(t)
	f := refusals["full"]
	refused := make(chan struct{})
	var once sync.Once
	d.queue.Handle(func(_ context.Context, m *relay.Message) error {
		d.note(m)
		if m.Seq == 5 {
			once.Do(func() { d.refuse(f.kind, f.code, 0); close(refused) })
		}
		return nil
	}, relay.Lease(5*time.Second, time.Second))
	stop := testkit.Background(t, d.relay.Run)
	<-refused
	require.NoError(t, stop())
	require.Equal(t, "[1 2 3 4 5]", d.seqs())
	require.Zero(t, d.processed(t), "the batch was not saved")
	d.Fail(nil)
	stop = testkit.Background(t, d.relay.Run)
	d.waitForAll(t)
	require.NoError(t, stop())
	require.Equal(t, "[1 2 3 4 5 1 2 3 4 5]", d.seqs())
}

package traffic_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite/store/ops"
	"github.com/honker-go/honker/internal/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs fn with fake time and a meter. alone counts the meter's own writes.
func bubble(t *testing.T, fn func(t *testing.T, m *traffic.Meter, alone *int)) {
	synctest.Test(t, func(t *testing.T) {
		alone := 0
		var m *traffic.Meter
		m = traffic.NewMeter(ops.Minutes{}, func() {
			if m.Take(true) {
				alone++
				m.Done(engine.PiggybackWritten)
			}
		})
		fn(t, m, &alone)
		m.Close()
	})
}

var one = traffic.Counts{Enqueued: 1}

// As long as there are commits, one of them carries the counts every second, and the meter makes no writes of its
// own.
func TestMeter_Carried(t *testing.T) {
	bubble(t, func(t *testing.T, m *traffic.Meter, alone *int) {
		carried := 0
		for range 1000 { // ten seconds
			m.Add(time.Now(), "jobs", one)
			if m.Take(false) {
				carried++
				m.Done(engine.PiggybackWritten)
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 10, carried)
		require.Zero(t, *alone)
	})
}

// After the last commit, the remaining counts are written once, and then nothing more is written.
func TestMeter_Quiet(t *testing.T) {
	bubble(t, func(t *testing.T, m *traffic.Meter, alone *int) {
		m.Add(time.Now(), "jobs", one)
		require.True(t, m.Take(false))
		m.Add(time.Now(), "jobs", one)
		m.Done(engine.PiggybackWritten)
		require.False(t, m.Take(false), "within the second")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, *alone)
		time.Sleep(24 * time.Hour)
		require.Equal(t, 1, *alone)
		require.False(t, m.Take(false))
		require.False(t, m.Take(true))
	})
}

// If a transaction fails for an unrelated reason, the next transaction carries the counts.
func TestMeter_Left(t *testing.T) {
	bubble(t, func(t *testing.T, m *traffic.Meter, alone *int) {
		m.Add(time.Now(), "jobs", one)
		require.True(t, m.Take(false))
		require.False(t, m.Take(false), "one at a time")
		m.Done(engine.PiggybackSkipped)
		require.True(t, m.Take(false))
		m.Done(engine.PiggybackWritten)
		require.False(t, m.Take(true))
	})
}

// After a failed write there is a pause. If the process is idle by then, the meter does not try
// again.
func TestMeter_Failed(t *testing.T) {
	bubble(t, func(t *testing.T, m *traffic.Meter, alone *int) {
		m.Add(time.Now(), "jobs", one)
		require.True(t, m.Take(false))
		m.Done(engine.PiggybackFailed)
		m.Add(time.Now(), "jobs", one)
		time.Sleep(59 * time.Second)
		require.False(t, m.Take(false))
		time.Sleep(time.Hour)
		require.Zero(t, *alone)
		require.True(t, m.Take(false), "with the next commit")
		m.Done(engine.PiggybackWritten)
		require.False(t, m.Take(true))
	})
}

// A nil Meter counts nothing and does not panic.
func TestMeter_Nil(t *testing.T) {
	var m *traffic.Meter
	m.Add(time.Now(), "jobs", one)
}

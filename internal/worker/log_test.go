package worker

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A log keeps the last lines that were written, whatever their lengths, in at most twice the memory
// of its limit.
func TestLog_Bounded(t *testing.T) {
	for name, lengths := range map[string][]int{
		"short ones": {10}, "long ones": {5000, 7, 20_000}, "one that fits": {maxLog}, "larger than all": {maxLog + 1, 3 * maxLog}, "exactly": {1 << 10},
	} {
		l, all := new(Log), ""
		for i := range 300 {
			line := fmt.Sprint(i, strings.Repeat("ä", lengths[i%len(lengths)]/2), "\n")
			_, err := l.Write([]byte(line))
			require.NoError(t, err)
			require.LessOrEqual(t, len(l.text), 2*maxLog, name)
			all += line
			if i%50 == 0 || len(all) < 3*maxLog {
				requireTail(t, l.String(), all, name)
			}
		}
		requireTail(t, l.String(), all, name)
	}
}

// requireTail checks that log is the end of all, in whole lines if a line fits.
func requireTail(t *testing.T, log, all, name string) {
	t.Helper()
	require.True(t, utf8.ValidString(log), name)
	require.LessOrEqual(t, len(log), maxLog, name)
	tail, cut := strings.CutPrefix(log, dropped)
	require.Equal(t, tail != all, cut, name)
	require.True(t, strings.HasSuffix(all, tail), name)
	if line := all[strings.LastIndexByte(all[:len(all)-1], '\n')+1:]; len(line) < maxLog/2 {
		require.True(t, strings.HasSuffix(strings.TrimSuffix(all, tail), "\n") || tail == all, "%s: whole lines", name)
		require.Greater(t, len(tail), min(len(all)-1, maxLog/2), "%s: nearly all of what fits", name)
	}
}

// Goroutines of a handler may log concurrently, even while the log is being saved.
func TestLog_Concurrent(t *testing.T) {
	var c Claim
	require.Empty(t, c.log.Load().String(), "nothing was logged")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			log := slog.New(slog.NewTextHandler(c.Log(), nil))
			for range 100 {
				log.Info("x", "i", i)
				_ = c.log.Load().String()
			}
		})
	}
	all.Wait()
	require.Equal(t, 800, strings.Count(c.log.Load().String(), "msg=x i="))
}

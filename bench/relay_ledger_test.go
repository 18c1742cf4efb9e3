package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBench_Ledger checks that repeated, early, missing and altered messages are found.
func TestBench_Ledger(t *testing.T) {
	for name, deliveries := range map[string][][2]int64{ // number according to the relay, number in the payload
		"twice":     {{1, 1}, {1, 1}},
		"too early": {{2, 2}},
		"a gap":     {{1, 1}, {3, 3}},
		"another":   {{1, 1}, {2, 3}},
	} {
		l := &ledger{last: make([]int64, 1)}
		for _, d := range deliveries {
			require.NoError(t, l.broken)
			l.deliver(0, d[0], []byte(payloadText(d[1])))
		}
		require.Error(t, l.broken, name)
	}
	l := &ledger{last: make([]int64, 2)}
	l.deliver(1, 1, []byte(payloadText(1)))
	l.deliver(0, 1, []byte(payloadText(1)))
	l.deliver(1, 2, []byte(payloadText(2)))
	require.NoError(t, l.broken)
	l.deliver(1, 3, []byte("no payload of ours"))
	require.Error(t, l.broken)
}

// TestBench_Haul checks that a batch may begin only where the previous batch finished.
func TestBench_Haul(t *testing.T) {
	for name, c := range map[string]struct {
		batches []haulBatch // epoch, first, count, finished
		last    int64       // 0 if the batches are wrong
	}{
		"one after another":           {[]haulBatch{{1, 1, 10, 10}, {2, 11, 5, 5}}, 15},
		"from the first again":        {[]haulBatch{{1, 1, 10, -1}, {3, 1, 1, 1}, {4, 2, 9, 9}}, 10},
		"saved, and killed after it":  {[]haulBatch{{1, 1, 10, -1}, {2, 11, 5, -1}}, 15},
		"a part of a batch":           {[]haulBatch{{1, 1, 10, 4}, {2, 5, 6, 6}}, 10},
		"delivered again when done":   {[]haulBatch{{1, 1, 10, 10}, {2, 10, 5, 5}}, 0},
		"a gap":                       {[]haulBatch{{1, 1, 10, 10}, {2, 12, 5, 5}}, 0},
		"a gap after a kill":          {[]haulBatch{{1, 1, 10, -1}, {2, 5, 6, 6}}, 0},
		"it does not begin with one":  {[]haulBatch{{1, 2, 10, 10}}, 0},
		"an epoch that does not rise": {[]haulBatch{{2, 1, 10, 10}, {2, 11, 5, 5}}, 0},
	} {
		last, err := verifyBatches(c.batches)
		require.Equal(t, c.last, last, "%s: %v", name, err)
		require.Equal(t, c.last == 0, err != nil, name)
	}
}

// TestBench_Journal checks that entries of several processes are read back.
func TestBench_Journal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	write := func(entries ...haulEntry) {
		text, err := binary.Append(nil, binary.LittleEndian, entries)
		require.NoError(t, err)
		require.Len(t, text, 32*len(entries), "no entry may cross a page")
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
	write(haulEntry{deliversEntry, 3, 1, 1, 10}, haulEntry{deliversEntry, 3, 2, 11, 5}, haulEntry{finishedEntry, 3, 1, 0, 10})
	partitions, err := readJournal(path)
	require.NoError(t, err)
	require.Equal(t, []haulBatch{{1, 1, 10, 10}, {2, 11, 5, -1}}, partitions[3])
	write(haulEntry{finishedEntry, 3, 1, 0, 10})
	_, err = readJournal(path)
	require.Error(t, err)
}

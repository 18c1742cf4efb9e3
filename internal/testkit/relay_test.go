package testkit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
)

// TestRelayHistory checks that ReadRelayHistory detects messages that were handled out of order,
// twice, or by two processes.
func TestRelayHistory(t *testing.T) {
	for name, c := range map[string]struct {
		ledgers []string
		wrong   string
	}{
		"in order":                {[]string{"given/q/0/1/1 7,given/q/0/1/2 8,saved/q/0/1 2", "given/q/0/2/3 9"}, ""},
		"saved before the kill":   {[]string{"given/q/0/1/1 7,given/q/0/1/2 8", "given/q/0/2/3 9"}, ""},
		"killed before the save":  {[]string{"given/q/0/1/1 7,given/q/0/1/2 8", "given/q/0/2/1 7,given/q/0/2/2 8,given/q/0/2/3 9"}, ""},
		"a batch of nothing":      {[]string{"saved/q/0/1 0", "given/q/0/2/1 7"}, ""},
		"a gap":                   {[]string{"given/q/0/1/1 7,given/q/0/1/3 8"}, "[1 3] were given"},
		"a gap between batches":   {[]string{"given/q/0/1/1 7", "given/q/0/2/3 8"}, "begins at message 3"},
		"again after the save":    {[]string{"given/q/0/1/1 7,saved/q/0/1 1", "given/q/0/2/1 7"}, "begins at message 1"},
		"saved and was lost":      {[]string{"given/q/0/1/1 7,lost/q/0/1 0", "given/q/0/2/2 8"}, "begins at message 2"},
		"another one":             {[]string{"given/q/0/1/1 7", "given/q/0/2/1 8"}, "carries 8, and before 7"},
		"an epoch of two":         {[]string{"given/q/0/1/1 7", "given/q/0/1/1 7"}, "epoch 1 is in"},
		"more saved than given":   {[]string{"given/q/0/1/1 7,saved/q/0/1 2"}, "2 messages were saved"},
		"earlier in a new ledger": {[]string{"given/q/0/2/2 8", "given/q/0/1/1 7"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i, text := range c.ledgers {
				writeLedger(t, filepath.Join(dir, string(rune('a'+i))), strings.Split(text, ","))
			}
			h, err := testkit.ReadRelayHistory(filepath.Join(dir, "*"))
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			numbers := h.Numbers[testkit.RelayPartition{Queue: "q"}]
			require.Equal(t, []int64{7, 8, 9}[:len(numbers)], numbers)
		})
	}
}

func writeLedger(t *testing.T, path string, lines []string) {
	t.Helper()
	l, err := testkit.OpenLedger(path)
	require.NoError(t, err)
	for _, line := range lines {
		what, n, _ := strings.Cut(line, " ")
		require.NoError(t, l.Note(what, int64(n[0]-'0')))
	}
	require.NoError(t, l.Close())
}

package cron_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "have the walker write the answers of testdata/vectors.golden again")

const golden = "testdata/vectors.golden"

// vector is a line of the golden file: spec, zone, from and the answer, with tabs
// between. What begins with # is a remark.
type vector struct {
	spec, zone string
	from       time.Time
	want       string
}

func vectorOf(t *testing.T, line string) (v vector, ok bool) {
	if line == "" || strings.HasPrefix(line, "#") {
		return v, false
	}
	parts := strings.Split(line, "\t")
	require.Len(t, parts, 4, "%q", line)
	from, err := time.Parse(time.RFC3339, parts[2])
	require.NoError(t, err)
	return vector{parts[0], parts[1], from.In(zone(t, parts[1])), parts[3]}, true
}

func (v vector) String() string {
	return strings.Join([]string{v.spec, v.zone, v.from.Format(time.RFC3339), v.want}, "\t")
}

// walked is the answer of the walker, after a hundred years at the latest.
func (v vector) walked(t *testing.T) string {
	w := newWalker(t, v.spec, v.from.Location())
	shown := w.shows(v.from.Unix())
	end := time.Date(shown.Add(time.Second).Year()+101, 1, 1, 0, 0, 0, 0, v.from.Location())
	if at, ok := w.walk(v.from.Unix(), end.Unix()-1); ok {
		return time.Unix(at, 0).In(v.from.Location()).Format(time.RFC3339)
	}
	return "no schedule match found within 100 years after local datetime " + shown.Format("2006-01-02T15:04:05")
}

// The answers are those of the golden file.
// honker's own code, on Linux, gives the answers of this file.
func TestCron_Vectors(t *testing.T) {
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	count := 0
	for i, line := range lines {
		v, ok := vectorOf(t, line)
		if !ok {
			continue
		}
		count++
		walked := v.walked(t)
		if *update {
			v.want = walked
			lines[i] = v.String()
		}
		require.Equal(t, v.want, walked, "the walker's answer to %s", v)
		require.Equal(t, v.want, answer(t, v), "the answer to %s", v)
	}
	require.Greater(t, count, 200)
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(strings.Join(lines, "\n")), 0o644))
	}
}

func answer(t *testing.T, v vector) string {
	at, err := parsed(t, v.spec).Next(v.from, v.from.Location())
	if err != nil {
		return err.Error()
	}
	return at.Format(time.RFC3339)
}

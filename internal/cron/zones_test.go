package cron_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shift is a clock change: starting at the time at, clocks are offset seconds ahead of UTC.
type shift struct {
	at     int64
	offset int32
}

// madeZone returns a zone with an initial offset, the given shifts, and then the rule. The encoding
// is that of RFC 9636, version 2: an empty table of version 1, the table, and the rule.
func madeZone(t *testing.T, offset int32, shifts []shift, rule string) *time.Location {
	t.Helper()
	var out bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			require.NoError(t, binary.Write(&out, binary.BigEndian, v))
		}
	}
	header := func(shifts, types, names int32) {
		put([]byte("TZif2"), make([]byte, 15), []int32{0, 0, 0, shifts, types, names})
	}
	n := int32(len(shifts))
	header(0, 0, 0)
	header(n, n+1, 4)
	for _, s := range shifts {
		put(s.at)
	}
	for i := range shifts {
		put(uint8(i + 1))
	}
	put(offset, uint16(0))
	for _, s := range shifts {
		put(s.offset, uint16(0))
	}
	put([]byte("LMT\x00\n" + rule + "\n"))
	loc, err := time.LoadLocationFromTZData("made", out.Bytes())
	require.NoError(t, err)
	return loc
}

// The last day of a leap year is handled correctly. After the last shift in its table, a zone
// follows a rule, for which Go's ZoneBounds returns the wrong end on that day.
func TestCron_Zone_LeapYearEnd(t *testing.T) {
	loc := madeZone(t, -5*3600, nil, "EST5EDT,M3.2.0,M11.1.0")
	at := time.Date(2028, 12, 28, 0, 0, 0, 0, loc)
	for want := at.Add(time.Hour); want.Year() == 2028; want = want.Add(time.Hour) {
		at = next(t, "0 * * * *", at)
		require.Equal(t, want, at)
	}
}

// It is an error if a gap is longer than the horizon. No real clock jumps that far: this zone skips the years from
// 1970 to 2105.
func TestCron_Zone_LongGap(t *testing.T) {
	loc := madeZone(t, -1<<31, []shift{{1 << 31, 1<<31 - 1}}, "")
	from := time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC).Add(1 << 31 * time.Second)
	_, err := parsed(t, " 0 0\t1 1 * ").Next(from, loc)
	require.EqualError(t, err, fmt.Sprintf(
		`no valid local schedule match found within 100 years after unix_ts=%d: " 0 0\t1 1 * "`, from.Unix()))
}

// A zone whose clocks go back by four days, which no real zone does, causes an error. It must never cause the
// schedule to fire again in the past.
func TestCron_Zone_Absurd(t *testing.T) {
	base := time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC)
	loc := madeZone(t, 0, []shift{{base.Unix(), -100 * 3600}}, "")
	from := base.Add(50 * time.Hour)
	_, err := parsed(t, "* * * * *").Next(from, loc)
	require.EqualError(t, err, fmt.Sprintf(
		`no valid local schedule match found within 100 years after unix_ts=%d: "* * * * *"`, from.Unix()))
}

// Shifts may follow one another: two shifts are within the search window, and the second undoes the
// first.
func TestCron_Zone_ShiftsInARow(t *testing.T) {
	base := time.Date(2025, 6, 1, 2, 0, 0, 0, time.UTC)
	back, forth := base.Unix(), base.Unix()+20*60
	loc := madeZone(t, 0, []shift{{back, -3600}, {forth, 0}}, "")
	for _, c := range []struct {
		spec       string
		from, want time.Duration // relative to the first shift
	}{
		{"* * * * *", -61 * time.Minute, 0},                              // 00:59, then 01:00 again
		{"10 1 * * *", -61 * time.Minute, 10 * time.Minute},              // shown twice: fires the second time
		{"30 1 * * *", -61 * time.Minute, 20 * time.Minute},              // shown, then skipped
		{"30 1 * * *", 5 * time.Minute, 20 * time.Minute},                // skipped
		{"30 2 * * *", -61 * time.Minute, 30 * time.Minute},              // after both shifts
		{"* * * * *", 20*time.Minute - 1e9, 20 * time.Minute},            // 01:19:59, then 02:20
		{"0 2 * * *", 20 * time.Minute, 24 * time.Hour},                  // 02:20, so tomorrow
		{"30 1 * * *", -25 * time.Minute, 24*time.Hour - 30*time.Minute}, // 01:35, past according to the clock
	} {
		require.Equal(t, base.Add(c.want).In(loc), next(t, c.spec, base.Add(c.from).In(loc)), "%+v", c)
	}
}

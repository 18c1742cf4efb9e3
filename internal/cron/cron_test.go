package cron_test

import (
	"fmt"
	"math"
	"testing"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func zone(t require.TestingT, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

func parsed(t require.TestingT, spec string) cron.Spec {
	s, err := cron.Parse(spec)
	require.NoError(t, err, "%q", spec)
	return s
}

func next(t require.TestingT, spec string, from time.Time) time.Time {
	at, err := parsed(t, spec).Next(from, from.Location())
	require.NoError(t, err, "%q", spec)
	return at
}

// Next uses local time if the location is nil.
func TestCron_Next_Local(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	time.Local = zone(t, "Asia/Kathmandu")
	at, err := parsed(t, "0 9 * * *").Next(time.Date(2025, 6, 1, 0, 0, 0, 0, time.UTC), nil)
	require.NoError(t, err)
	require.Equal(t, time.Date(2025, 6, 1, 9, 0, 0, 0, time.Local), at)
}

// Next uses the given location, not that of from.
func TestCron_Next_Location(t *testing.T) {
	from, kathmandu := time.Date(2025, 6, 1, 0, 0, 0, 0, zone(t, "America/New_York")), zone(t, "Asia/Kathmandu")
	for _, spec := range []string{"45 13 * * *", "@every 4h"} {
		at, err := parsed(t, spec).Next(from, kathmandu)
		require.NoError(t, err)
		require.Equal(t, kathmandu, at.Location(), spec)
		require.Equal(t, time.Date(2025, 6, 1, 13, 45, 0, 0, kathmandu), at, spec)
	}
}

// Next ignores fractions of a second in its start time.
func TestCron_Next_WholeSeconds(t *testing.T) {
	for _, spec := range []string{"* * * * * *", "@every 1s"} {
		for _, second := range []int64{1_700_000_000, -1_700_000_000} {
			for _, nanos := range []int64{0, 1, 500_000_000, 999_999_999} {
				at := next(t, spec, time.Unix(second, nanos).UTC())
				require.Equal(t, time.Unix(second+1, 0).UTC(), at, "%s after %d.%09d", spec, second, nanos)
			}
		}
	}
}

// An interval is added to the given time.
func TestCron_Interval(t *testing.T) {
	// Neither the epoch nor clock changes matter. In New York clocks go forward within the day.
	from := time.Date(2025, 3, 8, 12, 0, 7, 0, zone(t, "America/New_York"))
	for spec, want := range map[string]time.Duration{
		"@every 1s":                  time.Second,
		"@every 90s":                 90 * time.Second,
		"@every 7m":                  7 * time.Minute,
		"@every 36h":                 36 * time.Hour,
		"@every 1d":                  24 * time.Hour,
		"@every 007d":                7 * 24 * time.Hour,
		"@every5s":                   5 * time.Second,
		"@every   5s":                5 * time.Second,
		"  @every\t5s\n":             5 * time.Second,
		"\u3000@every\u00a05s\u2003": 5 * time.Second,
	} {
		require.Equal(t, from.Add(want), next(t, spec, from), "%q", spec)
	}
}

// The longest interval reaches to the largest timestamp.
func TestCron_Interval_Longest(t *testing.T) {
	spec := fmt.Sprintf(" @every %ds", int64(math.MaxInt64))
	require.Equal(t, int64(math.MaxInt64), next(t, spec, time.Unix(0, 0)).Unix())
	require.Equal(t, int64(-1), next(t, spec, time.Unix(math.MinInt64, 0)).Unix())

	_, err := parsed(t, spec).Next(time.Unix(1, 0), time.UTC)
	require.EqualError(t, err, `next interval overflows unix timestamp for " @every 9223372036854775807s"`)
	_, err = parsed(t, "@every\t106751991167300d").Next(time.Unix(1<<40, 0), time.UTC)
	require.EqualError(t, err, `next interval overflows unix timestamp for "@every\t106751991167300d"`)
}

// The error for a schedule without a match contains the start of the search.
func TestCron_Next_NoMatch(t *testing.T) {
	for _, c := range []struct{ spec, zone, from, want string }{
		{"0 0 30 2 *", "UTC", "2025-01-02T03:04:05Z", "2025-01-02T03:04:05"},
		{"0 0 31 2,4,6,9,11 *", "UTC", "2025-12-31T23:59:59Z", "2025-12-31T23:59:59"},
		{"0 0 30,31 2 *", "America/New_York", "1970-01-01T00:00:00Z", "1969-12-31T19:00:00"},
		{"* * * 31 4 0-6", "UTC", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59"},
		{"0 0 30 2 *", "Asia/Tokyo", "9999-12-31T23:59:59Z", "+10000-01-01T08:59:59"},
		{"0 0 30 2 *", "Etc/GMT+1", "0000-01-01T00:59:59Z", "-0001-12-31T23:59:59"},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		require.NoError(t, err)
		_, err = parsed(t, c.spec).Next(from, zone(t, c.zone))
		require.EqualError(t, err, "no schedule match found within 100 years after local datetime "+c.want)
	}
}

// The zero Spec never fires.
func TestCron_ZeroSpec(t *testing.T) {
	_, err := cron.Spec{}.Next(time.Unix(0, 0), time.UTC)
	require.EqualError(t, err, "no schedule match found within 100 years after local datetime 1970-01-01T00:00:00")
}

// Next rejects timestamps that chrono cannot represent.
func TestCron_Next_BadTimestamps(t *testing.T) {
	const first, last = -8_334_601_228_800, 8_210_266_876_799
	spec := parsed(t, "* * * * *")
	for _, from := range []int64{first, last, 0} {
		at, err := spec.Next(time.Unix(from, 0), time.UTC)
		require.NoError(t, err)
		require.Greater(t, at.Unix(), from)
		require.LessOrEqual(t, at.Unix(), from+60)
	}
	for _, from := range []int64{first - 1, last + 1, math.MinInt64, math.MaxInt64} {
		_, err := spec.Next(time.Unix(from, 0), time.UTC)
		require.EqualError(t, err, fmt.Sprintf("invalid timestamp: %d", from))
	}
}

// A schedule can fire at the zero time, the first second of the year 1, which robfig also returns if there is no
// match.
func TestCron_Next_ZeroTime(t *testing.T) {
	require.True(t, next(t, "0 0 1 1 *", time.Time{}.Add(-time.Hour)).IsZero())
	require.Equal(t, 1, next(t, "0 0 1 1 *", time.Time{}.In(time.FixedZone("", -3600))).Year())
}

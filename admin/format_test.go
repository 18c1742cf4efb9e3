package admin_test

import (
	"math"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// FormatSize uses the largest unit that gives at least 1, with one decimal below 100 and none for whole
// numbers.
func TestFormatSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1000: "1000 B", 1023: "1023 B", 1024: "1 KiB", 1025: "1.0 KiB", 1536: "1.5 KiB",
		99<<10 + 972: "99.9 KiB", 99<<10 + 973: "100 KiB", 100<<10 + 512: "100 KiB", 100<<10 + 513: "101 KiB",
		1023<<10 + 511: "1023 KiB", 1023<<10 + 512: "1.0 MiB", 1<<20 - 1: "1.0 MiB", 1 << 20: "1 MiB",
		64 << 20: "64 MiB", 64<<20 + 1: "64.0 MiB", 5 << 30: "5 GiB", 3_100_000_000_000: "2.8 TiB", 7 << 50: "7 PiB",
		math.MaxInt64: "8 EiB", -1: "-1 B", -1536: "-1.5 KiB", math.MinInt64: "-8 EiB",
	} {
		require.Equal(t, want, admin.FormatSize(n), n)
	}
}

// FormatSpan is exact and omits zero units.
func TestFormatSpan(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 1500: "1.5µs", 250 * time.Millisecond: "250ms", 1500 * time.Millisecond: "1.5s", 20 * time.Second: "20s",
		time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", time.Hour + 5*time.Second: "1h5s", time.Hour + 10*time.Minute: "1h10m",
		10*time.Hour + 500*time.Millisecond: "10h0.5s", day: "1d", day + 2*time.Hour: "1d2h", day + time.Minute: "1d1m",
		day + time.Millisecond: "1d1ms", 30*day + 61*time.Second: "30d1m1s", -90 * time.Second: "-1m30s", -25 * time.Hour: "-1d1h",
		math.MaxInt64: "106751d23h47m16.854775807s", math.MinInt64: "-106751d23h47m16.854775808s",
	} {
		require.Equal(t, want, admin.FormatSpan(d))
	}
}

// ParseSpan reads back every duration that FormatSpan prints.
func TestParseSpan_ReadsFormatSpan(t *testing.T) {
	t.Parallel()
	for _, unit := range []time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour} {
		require.NoError(t, quick.Check(func(n int32) bool {
			d := (time.Duration(n) * unit).Abs()
			got, err := admin.ParseSpan(admin.FormatSpan(d))
			return err == nil && got == d
		}, nil), unit)
	}
	got, err := admin.ParseSpan(admin.FormatSpan(math.MaxInt64))
	require.NoError(t, err)
	require.Equal(t, time.Duration(math.MaxInt64), got)
}

// ParseSpan accepts days before a duration and rejects signs, fractional days and spans that are too long.
func TestParseSpan(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "7d": 7 * day, "+7d": 7 * day,
		"1d12h": 36 * time.Hour, "1d0.5s": day + 500*time.Millisecond, "+5s": 5 * time.Second, "0d": 0, "106751d": 106751 * day,
	} {
		got, err := admin.ParseSpan(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, bad := range []string{
		"", "d", "+d", "now", "1", "-1h", "-1d", "--1d", "++1d", "1d-1h", "1d+1h", "1dh", "1d 1h", "1.5d", "1h1d", "1d1d", "1d.5s",
		"106752d", "106751d23h48m", "99999999999d", "9999999999999h",
	} {
		_, err := admin.ParseSpan(bad)
		require.ErrorIs(t, err, honker.ErrInvalid, bad)
	}
}

// RoundSpan keeps only as many digits as a reader needs.
func TestRoundSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"999ns": "0s", "1234ns": "1µs", "1234567ns": "1ms", "999.9ms": "999ms", "1.29s": "1.2s", "9.99s": "9.9s", "10.9s": "10s",
		"59m59.9s": "59m59s", "1h59m59s": "1h59m", "47h59m59s": "1d23h",
	} {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		require.Equal(t, want, admin.FormatSpan(admin.RoundSpan(d)), text)
		require.Equal(t, admin.RoundSpan(d), -admin.RoundSpan(-d), text)
	}
}

// FormatAge uses whole seconds and at most two units. FormatAgo says "now" if the event is less than a
// second away.
func TestFormatAgo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "now", 999 * time.Millisecond: "now", -999 * time.Millisecond: "now", 1999 * time.Millisecond: "1s ago", -time.Second: "in 1s",
		61 * time.Second: "1m1s ago", time.Hour + 5*time.Second: "1h ago", -25 * time.Hour: "in 1d1h", 400 * 24 * time.Hour: "400d ago",
		math.MinInt64: "in 106751d23h",
	} {
		require.Equal(t, want, admin.FormatAgo(d))
	}
	require.Equal(t, "0s", admin.FormatAge(400*time.Millisecond))
	require.Equal(t, "5s", admin.FormatAge(5900*time.Millisecond))
}

package cron_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/cron"
	"github.com/honker-go/honker/internal/testkit"
)

// zones have clock changes of an hour, half an hour and two hours, at midnight, and opposite to the
// seasons, or no clock changes.
var zones = []string{"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll",
	"America/Sao_Paulo", "Africa/Cairo", "Asia/Beirut", "Australia/Sydney", "Europe/Dublin", "America/Caracas",
	"Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca"}

// draw is a test case of a property, with its source of random numbers.
type draw struct {
	*testing.T
	*rand.Rand
}

// check tests a property on 200 random cases. Each run uses a new seed.
func check(t *testing.T, property func(t draw)) {
	seed := testkit.Seed(t)
	for n := range uint64(200) {
		property(draw{t, testkit.Rand(seed, n)})
	}
}

// between returns a random number from first to last.
func (d draw) between(first, last int) int { return first + d.IntN(last-first+1) }

// among returns a random element of all.
func (d draw) among(all ...string) string { return all[d.IntN(len(all))] }

func (d draw) part(first, last int) string {
	number := func(least int) string {
		return fmt.Sprintf("%s%d", d.among("", "", "", "0", "00"), d.between(least, last))
	}
	step := func() string { return fmt.Sprintf("/%d", d.between(1, 70)) }
	from := d.between(first, last)
	switch d.between(0, 5) {
	case 0:
		return "*" + step()
	case 1:
		return number(first) + step()
	case 2:
		return fmt.Sprintf("%d-%s", from, number(from))
	case 3:
		return fmt.Sprintf("%d-%s", from, number(from)) + step()
	default:
		return number(first)
	}
}

func (d draw) field(first, last int) string {
	if d.IntN(2) == 0 {
		return "*"
	}
	var parts []string
	for range d.between(1, 3) {
		parts = append(parts, d.part(first, last))
	}
	return strings.Join(parts, ",")
}

func (d draw) spec() string {
	fields := []string{d.field(0, 59), d.field(0, 23), d.field(1, 31), d.field(1, 12), d.field(0, 6)}
	if d.IntN(2) == 0 {
		fields = append([]string{d.field(0, 59)}, fields...)
	}
	return strings.Join(fields, " ")
}

// from returns a random time, often within hours of a clock change.
func (d draw) from(loc *time.Location) time.Time {
	const first, last = 946_684_800, 2_114_380_800 // 2000 to 2036
	from := time.Unix(int64(d.between(first, last)), 0).In(loc)
	if _, end := from.ZoneBounds(); !end.IsZero() && d.between(0, 3) > 0 {
		return end.Add(time.Duration(d.between(-3*hour, 3*hour)) * time.Second)
	}
	return from
}

// Next returns the first match. The walker checks every instant up to the result, or up to some hours or days if the
// result is far away.
func TestCron_Next_FirstMatch(t *testing.T) {
	check(t, func(t draw) {
		loc := zone(t, t.among(zones...))
		text, from := t.spec(), t.from(loc)
		at, err := parsed(t, text).Next(from, loc)
		w := newWalker(t, text, loc)
		until := from.Unix() + 6000*w.step
		found, ok := w.walk(from.Unix(), until)
		if err != nil {
			require.ErrorContains(t, err, "no schedule match found within 100 years")
			require.False(t, ok, "%s fires at %d", text, found)
			return
		}
		require.True(t, at.After(from), "%s after %s: %s", text, from, at)
		w.requireFires(t, from, at)
		if at.Unix() <= until {
			require.True(t, ok, "%s after %s: %s", text, from, at)
			require.Equal(t, at.Unix(), found, "%s after %s", text, from)
		} else {
			require.False(t, ok, "%s after %s: %s, but the walker %d", text, from, at, found)
		}
	})
}

func (w walker) requireFires(t require.TestingT, from, at time.Time) {
	set, before, shown := w.shows(from.Unix()), w.shows(at.Unix()-w.step), w.shows(at.Unix())
	require.True(t, w.matches(shown) || w.jumps(set, before, shown), "%s does not match, nor what lies before it", at)
}

// The start of the search does not matter between two fires, provided that the clocks also show a
// time between them. In the first pass of a repeated hour, they may show a later time than at the
// next fire, in which case that fire counts as past.
func TestCron_Next_AnyStart(t *testing.T) {
	check(t, func(t draw) {
		loc := zone(t, t.among(zones...))
		text, from := t.spec(), t.from(loc)
		spec := parsed(t, text)
		at, err := spec.Next(from, loc)
		if err != nil {
			return
		}
		w := newWalker(t, text, loc)
		between := time.Unix(from.Unix()+t.Int64N(at.Unix()-from.Unix()), 0).In(loc)
		shown := w.shows(between.Unix())
		if shown.Before(w.shows(from.Unix())) || !shown.Before(w.shows(at.Unix())) {
			return
		}
		again, err := spec.Next(between, loc)
		require.NoError(t, err)
		require.Equal(t, at, again, "%s from %s", text, between)
	})
}

// For any spec that parses, Next returns a later whole second, and no input causes a panic. The
// seeds are in testdata/fuzz.
func FuzzCron_Parse(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, unix int64, place uint8) {
		spec, err := cron.Parse(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		from := time.Unix(unix, 0)
		at, err := spec.Next(from, zone(t, zones[int(place)%len(zones)]))
		if err == nil {
			require.Greater(t, at.Unix(), unix)
			require.Zero(t, at.Nanosecond())
		}
	})
}

// BenchmarkCron_Next measures specs with near and distant fires.
func BenchmarkCron_Next(b *testing.B) {
	from := time.Date(2025, 6, 15, 12, 34, 56, 0, time.UTC)
	for name, text := range map[string]string{
		"minute":     "* * * * *",
		"night":      "30 3 * * *",
		"friday13":   "0 0 13 * 5",
		"leap":       "0 0 29 2 1",
		"interval":   "@every 90s",
		"impossible": "0 0 31 2,4,6,9,11 *",
	} {
		spec, loc := parsed(b, text), zone(b, "America/New_York")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = spec.Next(from, loc)
			}
		})
	}
}

// BenchmarkCron_Parse measures the parsing of a spec.
func BenchmarkCron_Parse(b *testing.B) {
	for b.Loop() {
		_, _ = cron.Parse("*/10 5-7/2,8 1 2-12 * 1-5")
	}
}

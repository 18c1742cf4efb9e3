package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

const day = 24 * time.Hour

var sizeUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// FormatSize formats a number of bytes in B, KiB, MiB, GiB, TiB, PiB or EiB, each 1,024 times the previous one. It
// uses the largest unit for which the value is at least 1. Values below 100 are rounded to a single decimal, which
// is omitted if the value is a whole number. Larger values are rounded to whole numbers. Examples: 512 B, 64 MiB,
// 1.5 GiB, 476 GiB. Problems, the dashboard and the honker command print sizes with FormatSize and durations with
// [FormatSpan].
func FormatSize(n int64) string {
	sign, size := "", float64(n)
	if n < 0 {
		sign, size = "-", -size
	}
	unit := 0
	for size >= 1023.5 && unit < len(sizeUnits)-1 { // 1023.5 KiB would round to 1024 KiB; bytes are whole numbers
		size /= 1024
		unit++
	}
	digits := 0
	if size < 99.95 && size != math.Trunc(size) {
		digits = 1
	}
	return sign + strconv.FormatFloat(size, 'f', digits, 64) + " " + sizeUnits[unit]
}

// FormatSpan formats d exactly, like [time.Duration.String], but with days of 24 hours and without zero units: 7d, 1d2h,
// 1m30s, 250ms, 0s. [ParseSpan] reads the result.
func FormatSpan(d time.Duration) string {
	days, rest := d/day, d%day
	text := rest.Abs().String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	text = strings.Replace(text, "h0m", "h", 1)
	if days != 0 {
		number := strconv.FormatInt(int64(days.Abs()), 10) + "d"
		if rest == 0 {
			text = ""
		}
		text = number + text
	}
	if d < 0 {
		text = "-" + text
	}
	return text
}

// RoundSpan rounds a measured duration for display, toward zero. It keeps the two largest units among days, hours,
// minutes and seconds. Durations from 1 to 10 seconds are rounded to tenths of a second, shorter durations to
// milliseconds, and durations below a millisecond to microseconds.
func RoundSpan(d time.Duration) time.Duration {
	unit := time.Microsecond
	switch abs := d.Abs(); {
	case abs >= day:
		unit = time.Hour
	case abs >= time.Hour:
		unit = time.Minute
	case abs >= 10*time.Second:
		unit = time.Second
	case abs >= time.Second:
		unit = 100 * time.Millisecond
	case abs >= time.Millisecond:
		unit = time.Millisecond
	}
	return d.Truncate(unit)
}

// FormatAge formats the time since an event with at most two units, rounded toward zero to whole seconds: 5s, 4m12s,
// 2d3h.
func FormatAge(d time.Duration) string { return FormatSpan(RoundSpan(d.Truncate(time.Second))) }

// FormatAgo formats the time since an event in words: "4m12s ago", "in 2d3h" if d is negative, or "now" if the event
// is less than a second away. The duration is formatted with [FormatAge].
func FormatAgo(d time.Duration) string {
	switch age := FormatAge(d.Abs()); {
	case age == "0s":
		return "now"
	case d < 0:
		return "in " + age
	default:
		return age + " ago"
	}
}

// ParseSpan parses a duration such as 90s, 30m, 7d or 1d12h. The syntax is a number of whole days followed by a
// duration as in [time.ParseDuration]; either part may be omitted. ParseSpan accepts all non-negative durations that
// [FormatSpan] prints. It returns [honker.ErrInvalid] for negative and malformed durations.
func ParseSpan(text string) (time.Duration, error) {
	number, rest, found := strings.Cut(strings.TrimPrefix(text, "+"), "d")
	if !found {
		if d, err := time.ParseDuration(text); err == nil && d >= 0 {
			return d, nil
		}
		return 0, errSpan(text)
	}
	days, err := strconv.ParseUint(number, 10, 32)
	if err != nil || days > uint64(math.MaxInt64/day) || rest != "" && (rest[0] < '0' || rest[0] > '9') {
		return 0, errSpan(text)
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, errSpan(text)
		}
	}
	if total := time.Duration(days)*day + d; total >= d {
		return total, nil
	}
	return 0, errSpan(text)
}

func errSpan(text string) error {
	return fmt.Errorf("%w: %q must be a duration such as 90s, 30m, 2h or 7d", honker.ErrInvalid, text)
}

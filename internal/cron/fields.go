package cron

import (
	"fmt"
	"strconv"
	"strings"

	robfig "github.com/robfig/cron/v3"
)

// bounds holds a field's minimum and maximum.
type bounds struct{ first, last uint64 }

// Sunday is 0; 7 is not accepted.
var fieldBounds = [...]bounds{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}

// bothDays is the bit that robfig sets for a "*" field. If either day field has this bit, robfig requires a day to
// match both day fields. Otherwise the day must match at least one of them.
const bothDays = 1 << 63

// parseFields parses 5 or 6 fields. With 5 fields the seconds are 0.
func parseFields(text string) (robfig.SpecSchedule, error) {
	fields := strings.Fields(text)
	switch len(fields) {
	case 5:
		fields = append([]string{"0"}, fields...)
	case 6:
	default:
		return robfig.SpecSchedule{}, fmt.Errorf("schedule expression requires 5 or 6 cron fields, "+
			"or '@every <n><unit>'; got %d: %s", len(fields), quote(text))
	}
	var sets [len(fieldBounds)]uint64
	for i, field := range fields {
		set, err := parseField(field, fieldBounds[i])
		if err != nil {
			return robfig.SpecSchedule{}, err
		}
		sets[i] = set
	}
	return robfig.SpecSchedule{Second: sets[0], Minute: sets[1], Hour: sets[2],
		Dom: sets[3] | bothDays, Month: sets[4], Dow: sets[5]}, nil
}

// parseField parses a field and returns its values as a bit mask.
func parseField(field string, in bounds) (set uint64, err error) {
	for part := range strings.SplitSeq(field, ",") {
		values, err := parsePart(part, in)
		if err != nil {
			return 0, err
		}
		set |= values
	}
	return set, nil
}

// parsePart parses a range and its step. A step on a single value has no effect, because the range
// ends where it starts.
func parsePart(part string, in bounds) (set uint64, err error) {
	span, step, stepped := strings.Cut(part, "/")
	by := uint64(1)
	if stepped {
		if by, err = parseStep(step, part); err != nil {
			return 0, err
		}
	}
	got, err := parseSpan(span, in)
	if err != nil {
		return 0, fmt.Errorf("cron field %s not an integer", quote(part))
	}
	if got.first < in.first || got.last > in.last || got.first > got.last {
		return 0, fmt.Errorf("cron field %s out of range [%d,%d] or inverted", quote(part), in.first, in.last)
	}
	for n := got.first; n <= got.last; n += by {
		set |= 1 << n
	}
	return set, nil
}

func parseStep(step, part string) (by uint64, err error) {
	if by, err = parseNumber(step); err != nil {
		return 0, fmt.Errorf("cron step must be a positive integer: %s", quote(part))
	}
	if by == 0 {
		return 0, fmt.Errorf("cron step must be positive: %s", quote(part))
	}
	return by, nil
}

func parseSpan(span string, all bounds) (got bounds, err error) {
	if span == "*" {
		return all, nil
	}
	first, last, ranged := strings.Cut(span, "-")
	if !ranged {
		last = first
	}
	if got.first, err = parseNumber(first); err != nil {
		return got, err
	}
	got.last, err = parseNumber(last)
	return got, err
}

// parseNumber accepts the same numbers as Rust's parser for u32, which allows a leading plus sign.
func parseNumber(digits string) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(digits, "+"), 10, 32)
}

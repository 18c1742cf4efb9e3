package cron

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const intervalForm = "interval expression must be '@every <n><unit>'"

var unitSeconds = map[string]int64{"s": 1, "m": 60, "h": 60 * 60, "d": 24 * 60 * 60}

// parseInterval parses the text after "@every": a number followed directly by a unit.
func parseInterval(body string) (seconds int64, err error) {
	if body == "" {
		return 0, errors.New(intervalForm)
	}
	unit := strings.TrimLeft(body, "0123456789")
	if unit == "" || unit == body {
		return 0, fmt.Errorf(intervalForm+"; got %s", quote(body))
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(body, unit), 10, 64)
	switch each := unitSeconds[unit]; {
	case err != nil:
		return 0, fmt.Errorf("interval count must be an integer: %s", quote(body))
	case n == 0:
		return 0, fmt.Errorf("interval count must be positive: %s", quote(body))
	case each == 0:
		return 0, fmt.Errorf("unsupported interval unit %s; expected one of s, m, h, d", quote(unit))
	case n > math.MaxInt64/each:
		return 0, fmt.Errorf("interval is too large: %s", quote(body))
	default:
		return n * each, nil
	}
}

func (s Spec) nextInterval(from time.Time) (time.Time, error) {
	if from.Unix() > math.MaxInt64-s.every {
		return time.Time{}, fmt.Errorf("next interval overflows unix timestamp for %s", quote(s.text))
	}
	return time.Unix(from.Unix()+s.every, 0).In(from.Location()), nil
}

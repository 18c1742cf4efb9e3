package cron

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// macros maps the schedule names that other cron implementations accept to specs.
var macros = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

var (
	monthNames = numbered(1, "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
	dayNames   = numbered(0, "sun", "mon", "tue", "wed", "thu", "fri", "sat")
)

func numbered(first int, names ...string) map[string]string {
	numbers := make(map[string]string, len(names))
	for i, name := range names {
		numbers[name] = strconv.Itoa(first + i)
	}
	return numbers
}

// Translate converts spec to honker's dialect, which is stored in the file so that other bindings can read it. A spec
// that is valid in the dialect is returned unchanged. Translate also accepts macros such as "@daily", month and day
// names, 7 for Sunday, and intervals such as "@every 1h30m".
func Translate(spec string) (string, error) {
	_, err := Parse(spec)
	if err == nil {
		return spec, nil
	}
	text := strings.TrimSpace(spec)
	if body, ok := strings.CutPrefix(text, "@every"); ok {
		return translateInterval(strings.TrimSpace(body), err)
	}
	if strings.HasPrefix(text, "@") {
		return translateMacro(text)
	}
	fields := strings.Fields(text)
	if err := refuseForeign(fields); err != nil {
		return "", err
	}
	if len(fields) != 5 && len(fields) != 6 {
		return "", err
	}
	month, day := len(fields)-2, len(fields)-1
	fields[month] = translateParts(fields[month], monthNames, nil)
	fields[day] = translateParts(fields[day], dayNames, sunday)
	plain := strings.Join(fields, " ")
	_, err = Parse(plain)
	return plain, err
}

func translateMacro(text string) (string, error) {
	if plain, ok := macros[text]; ok {
		return plain, nil
	}
	return "", fmt.Errorf("unknown schedule %s; expected @hourly, @daily, @weekly, @monthly, @yearly or @every <interval>", quote(text))
}

// refuseForeign rejects features of other cron implementations that the file can't express, and suggests a
// replacement.
func refuseForeign(fields []string) error {
	for i, field := range fields {
		if i == 0 && (strings.HasPrefix(field, "CRON_TZ=") || strings.HasPrefix(field, "TZ=")) {
			return fmt.Errorf("%s: a schedule has no zone of its own; its times are those of the process's local zone", quote(field))
		}
		if strings.HasPrefix(field, "?") {
			return fmt.Errorf("cron field %s: write * for any value", quote(field))
		}
	}
	return nil
}

// translateInterval converts a Go duration to a single number and unit. If body can't be converted, it returns the
// error passed as otherwise.
func translateInterval(body string, otherwise error) (string, error) {
	d, err := time.ParseDuration(body)
	if err != nil || d <= 0 {
		return "", otherwise
	}
	for _, unit := range []struct {
		span time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%unit.span == 0 {
			return fmt.Sprintf("@every %d%s", d/unit.span, unit.name), nil
		}
	}
	return "", fmt.Errorf("interval %s is not a whole number of seconds", quote(body))
}

// translateParts replaces the names in a field with numbers, and then passes each part through then. It keeps unknown
// text, so that Parse will report it.
func translateParts(field string, names map[string]string, then func(part string) string) string {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		span, step, stepped := strings.Cut(part, "/")
		first, last, ranged := strings.Cut(span, "-")
		part = numberOf(first, names)
		if ranged {
			part += "-" + numberOf(last, names)
		}
		if stepped {
			part += "/" + step
		}
		if then != nil {
			part = then(part)
		}
		parts[i] = part
	}
	return strings.Join(parts, ",")
}

func numberOf(name string, names map[string]string) string {
	if number, ok := names[strings.ToLower(name)]; ok {
		return number
	}
	return name
}

// sunday splits a range that ends with 7 or the name of Sunday into a list, because in the dialect Sunday can only be
// 0.
func sunday(part string) string {
	span, step, stepped := strings.Cut(part, "/")
	first, last, ranged := strings.Cut(span, "-")
	if !ranged {
		last = first
	}
	from, err := parseNumber(first)
	if err != nil {
		return part
	}
	to, err := parseNumber(last)
	if err != nil || to != 7 && (to != 0 || from == 0) || from > 7 {
		return part
	}
	by := uint64(1)
	if stepped {
		if by, err = parseStep(step, part); err != nil {
			return part
		}
	}
	var days []string
	for day := from; day <= 7; day += by {
		days = append(days, strconv.FormatUint(day%7, 10))
	}
	return strings.Join(days, ",")
}

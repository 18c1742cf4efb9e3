package cron_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/cron"
)

// values returns the values at which spec fires within count units of length each from start.
// Values count from 0.
func values(t *testing.T, spec string, start time.Time, each time.Duration, count int) (got []int) {
	t.Helper()
	for at := start.Add(-time.Second); ; {
		at = next(t, spec, at)
		n := int(at.Sub(start) / each)
		if n >= count {
			return got
		}
		require.Zero(t, at.Sub(start)%each, "%q fires at %s", spec, at)
		got = append(got, n)
	}
}

func every(first, last, step int) (all []int) {
	for n := first; n <= last; n += step {
		all = append(all, n)
	}
	return all
}

// sunday is the first day of a month with 31 days.
var sunday = time.Date(2023, 10, 1, 0, 0, 0, 0, time.UTC)

// Each field is interpreted according to the grammar.
func TestCron_Parse_Fields(t *testing.T) {
	for field, want := range map[string][]int{
		"*":                    every(0, 59, 1),
		"*/1":                  every(0, 59, 1),
		"*/15":                 {0, 15, 30, 45},
		"*/40":                 {0, 40},
		"*/59":                 {0, 59},
		"*/60":                 {0},
		"*/4294967295":         {0},
		"0":                    {0},
		"59":                   {59},
		"+5":                   {5},
		"05":                   {5},
		"+0005":                {5},
		"00000000000000000059": {59},
		"5/10":                 {5}, // not from 5 on, as in other cron implementations
		"5/1":                  {5},
		"5/+10":                {5},
		"0/15":                 {0},
		"*/+030":               {0, 30},
		"5-5":                  {5},
		"5-5/2":                {5},
		"1-3":                  {1, 2, 3},
		"+1-+3":                {1, 2, 3},
		"01-003":               {1, 2, 3},
		"1-10/3":               {1, 4, 7, 10},
		"7-59/20":              {7, 27, 47},
		"7-9/20":               {7},
		"0-30/10":              {0, 10, 20, 30},
		"0-59":                 every(0, 59, 1),
		"50-59/4":              {50, 54, 58},
		"30,0":                 {0, 30},
		"5,5,05,+5,5-5":        {5},
		"1-3,2-4":              {1, 2, 3, 4},
		"*/30,*/20":            {0, 20, 30, 40},
		"59,*/45,7/2,10-12/2":  {0, 7, 10, 12, 45, 59},
		"*,5":                  every(0, 59, 1),
	} {
		require.Equal(t, want, values(t, field+" * * * *", sunday, time.Minute, 60), "minute %s", field)
		require.Equal(t, want, values(t, field+" * * * * *", sunday, time.Second, 60), "second %s", field)
	}
}

// Each field has bounds. Steps count from the lower bound, which is 1 in two of the fields.
func TestCron_Parse_Bounds(t *testing.T) {
	for spec, want := range map[string][]int{
		"0 * * * *":       every(0, 23, 1),
		"0 */7 * * *":     {0, 7, 14, 21},
		"0 23 * * *":      {23},
		"0 0 * * * *":     every(0, 23, 1),
		"0 0 3-5/2 * * *": {3, 5},
	} {
		require.Equal(t, want, values(t, spec, sunday, time.Hour, 24), spec)
	}
	for spec, want := range map[string][]int{
		"0 0 * * *":       every(0, 30, 1),
		"0 0 */10 * *":    {0, 10, 20, 30},
		"0 0 31 * *":      {30},
		"0 0 1 10 *":      {0},
		"0 0 * 9,11 *":    nil,
		"0 0 * */3 *":     every(0, 30, 1), // 1, 4, 7, 10
		"0 0 * */4 *":     nil,             // 1, 5, 9
		"0 0 * * 0":       {0, 7, 14, 21, 28},
		"0 0 * * 6":       {6, 13, 20, 27},
		"0 0 * * */3":     {0, 3, 6, 7, 10, 13, 14, 17, 20, 21, 24, 27, 28},
		"0 0 * * 1-5/4":   {1, 5, 8, 12, 15, 19, 22, 26, 29},
		"0 0 13 * 5":      {12}, // both day fields: Friday, October 13, 2023
		"0 0 13 * 4":      nil,
		"0 0 1-7 * 1":     {1}, // the first Monday
		"0 0 */2 * 0":     {0, 14, 28},
		"0 0 1-31 * 0-6":  every(0, 30, 1),
		"0 0 0 13 10 5":   {12},
		"0 0 0 */15 10 *": {0, 15, 30},
	} {
		require.Equal(t, want, values(t, spec, sunday, 24*time.Hour, 31), spec)
	}
}

// Any Unicode whitespace separates fields.
func TestCron_Parse_UnicodeSpace(t *testing.T) {
	for _, spec := range []string{
		"7 8 9 10 *",
		"  7  8 9   10 * ",
		"\t7\t8\n9\r\n10 *\n",
		"7\v8\f9 10 *",
		"\u00a07\u00858\u16809\u200010\u200a*\u2028",
		"7\u20298\u202f9\u205f10\u3000*",
		"0 7 8 9 10 *",
	} {
		require.Equal(t, time.Date(2023, 10, 9, 8, 7, 0, 0, time.UTC), next(t, spec, sunday), "%q", spec)
	}
}

// Parse rejects specs outside the grammar.
func TestCron_Parse_Refuses(t *testing.T) {
	count := func(k int, spec string) string {
		return fmt.Sprintf("schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got %d: %s", k, spec)
	}
	number := func(part string) string { return `cron field "` + part + `" not an integer` }
	step := func(part string) string { return `cron step must be a positive integer: "` + part + `"` }
	bounds := func(part, bounds string) string {
		return `cron field "` + part + `" out of range ` + bounds + ` or inverted`
	}
	form := func(body string) string { return `interval expression must be '@every <n><unit>'; got "` + body + `"` }
	unit := func(u string) string { return `unsupported interval unit "` + u + `"; expected one of s, m, h, d` }

	for spec, want := range map[string]string{
		"":                        count(0, `""`),
		" \t ":                    count(0, `""`),
		"*":                       count(1, `"*"`),
		"* * * *":                 count(4, `"* * * *"`),
		"* * * * * * *":           count(7, `"* * * * * * *"`),
		" a\t\"b\"\\\n ":          count(2, `"a\t\"b\"\\"`),
		"a b\nc'\r\x00":           count(4, `"a b\nc'\r\0"`),
		"\x07\x1b\x7f\u200b":      count(1, `"\u{7}\u{1b}\u{7f}\u{200b}"`),
		"a\u00a0\u3000é😀":         count(2, `"a\u{a0}\u{3000}é😀"`),
		"e\u0301\ufeff\U000e0100": count(1, `"e\u{301}\u{feff}\u{e0100}"`),
		"\uff9e\u200d":            count(1, `"\u{ff9e}\u{200d}"`),
		"@hourly":                 count(1, `"@hourly"`),
		"@daily":                  count(1, `"@daily"`),
		"@reboot":                 count(1, `"@reboot"`),
		"@Every 5s":               count(2, `"@Every 5s"`),
		"@ every 5s":              count(3, `"@ every 5s"`),
		"CRON_TZ=UTC 0 0 * * * *": count(7, `"CRON_TZ=UTC 0 0 * * * *"`),
		"0 0 1 1 * 2026 *":        count(7, `"0 0 1 1 * 2026 *"`),

		"TZ=UTC 0 * * * *":   number("TZ=UTC"),
		"* * * JAN *":        number("JAN"),
		"* * * * MON":        number("MON"),
		"* * * * MON-FRI":    number("MON-FRI"),
		"* * ? * *":          number("?"),
		"* * L * *":          number("L"),
		"* * 15W * *":        number("15W"),
		"* * * * 5#2":        number("5#2"),
		"a * * * *":          number("a"),
		", * * * *":          number(""),
		"1, * * * *":         number(""),
		",1 * * * *":         number(""),
		"1,,2 * * * *":       number(""),
		"-1 * * * *":         number("-1"),
		"- * * * *":          number("-"),
		"1- * * * *":         number("1-"),
		"+ * * * *":          number("+"),
		"++5 * * * *":        number("++5"),
		"5+ * * * *":         number("5+"),
		"1-5-7 * * * *":      number("1-5-7"),
		"1--5 * * * *":       number("1--5"),
		"*-5 * * * *":        number("*-5"),
		"5-* * * * *":        number("5-*"),
		"** * * * *":         number("**"),
		"1.5 * * * *":        number("1.5"),
		"0x5 * * * *":        number("0x5"),
		"1_0 * * * *":        number("1_0"),
		"٣ * * * *":          number("٣"),
		"4294967296 * * * *": number("4294967296"),
		"/5 * * * *":         number("/5"),
		"5-/2 * * * *":       number("5-/2"),
		"\"5 * * * *":        number(`\"5`),
		"1,2,x,99 * * * *":   number("x"),
		"x y/0 z 99 w":       number("x"), // the first invalid field
		"x * * * * 99":       number("x"), // seconds come first

		"*/ * * * *":           step("*/"),
		"*/x * * * *":          step("*/x"),
		"*/-2 * * * *":         step("*/-2"),
		"*/+ * * * *":          step("*/+"),
		"*/5/2 * * * *":        step("*/5/2"),
		"5// * * * *":          step("5//"),
		"*/1-2 * * * *":        step("*/1-2"),
		"*/1.5 * * * *":        step("*/1.5"),
		"*/4294967296 * * * *": step("*/4294967296"),
		"x/y * * * *":          step("x/y"), // the step is parsed first
		"*/0 * * * *":          `cron step must be positive: "*/0"`,
		"5/00 * * * *":         `cron step must be positive: "5/00"`,
		"x/+0 * * * *":         `cron step must be positive: "x/+0"`,

		"60 * * * *":         bounds("60", "[0,59]"),
		"60 * * * * *":       bounds("60", "[0,59]"),
		"4294967295 * * * *": bounds("4294967295", "[0,59]"),
		"0-60 * * * *":       bounds("0-60", "[0,59]"),
		"50-70/5 * * * *":    bounds("50-70/5", "[0,59]"),
		"5-1 * * * *":        bounds("5-1", "[0,59]"),
		"* 24 * * *":         bounds("24", "[0,23]"),
		"* 22-2 * * *":       bounds("22-2", "[0,23]"),
		"* 22-2/2 * * *":     bounds("22-2/2", "[0,23]"),
		"* * 0 * *":          bounds("0", "[1,31]"),
		"* * 32 * *":         bounds("32", "[1,31]"),
		"* * 0-5 * *":        bounds("0-5", "[1,31]"),
		"* * * 0 *":          bounds("0", "[1,12]"),
		"* * * 13 *":         bounds("13", "[1,12]"),
		"* * * 11-2 *":       bounds("11-2", "[1,12]"),
		"* * * * 7":          bounds("7", "[0,6]"),
		"* * * * 5-7":        bounds("5-7", "[0,6]"),
		"* * * * 6-0":        bounds("6-0", "[0,6]"),
		"* * * * 1,2,5-1":    bounds("5-1", "[0,6]"),
		"* * * * * 7":        bounds("7", "[0,6]"),

		"@every":                       "interval expression must be '@every <n><unit>'",
		" @every\t":                    "interval expression must be '@every <n><unit>'",
		"@every 5":                     form("5"),
		"@every s":                     form("s"),
		"@every -5s":                   form("-5s"),
		"@every +5s":                   form("+5s"),
		"@every .5s":                   form(".5s"),
		"@every ٣s":                    form("٣s"),
		"@everything 5s":               form("thing 5s"),
		"@every@every 5s":              form("@every 5s"),
		"@every 5 s":                   unit(" s"),
		"@every 5\ts":                  unit(`\ts`),
		"@every 5S":                    unit("S"),
		"@every 5w":                    unit("w"),
		"@every 500ms":                 unit("ms"),
		"@every 1.5h":                  unit(".5h"),
		"@every 1h30m":                 unit("h30m"),
		"@every 5s 5s":                 unit("s 5s"),
		"@every 0s":                    `interval count must be positive: "0s"`,
		"@every 000w":                  `interval count must be positive: "000w"`,
		"@every 9223372036854775808s":  `interval count must be an integer: "9223372036854775808s"`,
		"@every 99999999999999999999w": `interval count must be an integer: "99999999999999999999w"`,
		"@every 9223372036854775807m":  `interval is too large: "9223372036854775807m"`,
		"@every 106751991167301d":      `interval is too large: "106751991167301d"`,
		"@every 9223372036854775807w":  unit("w"),
	} {
		_, err := cron.Parse(spec)
		require.EqualError(t, err, want, "%q", spec)
	}
}

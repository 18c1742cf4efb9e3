package cron_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/cron"
)

// Specs for other cron implementations are translated to honker's dialect, and specs in the dialect are unchanged.
func TestCron_Translate(t *testing.T) {
	for spec, want := range map[string]string{
		" 30 5 * * * * ":       " 30 5 * * * * ",
		"@every 90s":           "@every 90s",
		"@every5s":             "@every5s",
		"5/15 * * * *":         "5/15 * * * *",
		"@hourly":              "0 * * * *",
		"@daily":               "0 0 * * *",
		" @midnight ":          "0 0 * * *",
		"@weekly":              "0 0 * * 0",
		"@monthly":             "0 0 1 * *",
		"@yearly":              "0 0 1 1 *",
		"@annually":            "0 0 1 1 *",
		"@every 1h30m":         "@every 90m",
		"@every 1.5h":          "@every 90m",
		"@every 120m0s":        "@every 2h",
		"@every 1m30s":         "@every 90s",
		"@every 2000ms":        "@every 2s",
		"0 9 * * MON":          "0 9 * * 1",
		"0 9 * * mon-Fri/2":    "0 9 * * 1-5/2",
		"0 9 * JAN,jul-dec *":  "0 9 * 1,7-12 *",
		"0 0 9 1 feb sun":      "0 0 9 1 2 0",
		"0 9 * * 7":            "0 9 * * 0",
		"0 9 * * 07":           "0 9 * * 0",
		"0 9 * * 1,7":          "0 9 * * 1,0",
		"0 9 * * 5-7":          "0 9 * * 5,6,0",
		"0 9 * * FRI-SUN":      "0 9 * * 5,6,0",
		"0 9 * * 0-7":          "0 9 * * 0,1,2,3,4,5,6,0",
		"0 9 * * 1-7/3":        "0 9 * * 1,4,0",
		"0 9 * * SUN-TUE":      "0 9 * * 0-2",
		"0\t9  * *\u00a0MON,7": "0 9 * * 1,0",
	} {
		got, err := cron.Translate(spec)
		require.NoError(t, err, spec)
		require.Equal(t, want, got, spec)
		_, err = cron.Parse(got)
		require.NoError(t, err, "another binding reads it: %q", got)
	}
}

// Specs that honker's dialect cannot express are rejected, with a suggestion in the error.
func TestCron_Translate_Refuses(t *testing.T) {
	for spec, want := range map[string]string{
		"0 9 ? * *":                "cron field \"?\": write * for any value",
		"0 9 * * ?":                "cron field \"?\": write * for any value",
		"CRON_TZ=UTC 0 9 * * *":    `"CRON_TZ=UTC": a schedule has no zone of its own; its times are those of the process's local zone`,
		"TZ=Asia/Tokyo 0 9 * * *":  `"TZ=Asia/Tokyo": a schedule has no zone of its own; its times are those of the process's local zone`,
		"@reboot":                  `unknown schedule "@reboot"; expected @hourly, @daily, @weekly, @monthly, @yearly or @every <interval>`,
		"@every 1.5s":              `interval "1.5s" is not a whole number of seconds`,
		"@every 500ms":             `interval "500ms" is not a whole number of seconds`,
		"@every 0s":                `interval count must be positive: "0s"`,
		"@every -1h30m":            `interval expression must be '@every <n><unit>'; got "-1h30m"`,
		"@every 1d12h":             `unsupported interval unit "d12h"; expected one of s, m, h, d`,
		"0 9 * * MON,x":            `cron field "x" not an integer`,
		"0 9 MON * *":              `cron field "MON" not an integer`,
		"0 9 * MON *":              `cron field "MON" not an integer`,
		"0 9 * * 8":                `cron field "8" out of range [0,6] or inverted`,
		"0 9 * * 7-1":              `cron field "7-1" out of range [0,6] or inverted`,
		"0 9 * * 5-7/0":            `cron step must be positive: "5-7/0"`,
		"0 9 * * MONDAY":           `cron field "MONDAY" not an integer`,
		"0 9 * * 5L":               `cron field "5L" not an integer`,
		"0 9 * *":                  `schedule expression requires 5 or 6 cron fields, or '@every <n><unit>'; got 4: "0 9 * *"`,
		"0 9 1-31/0 * 7":           `cron step must be positive: "1-31/0"`,
		"@every 99999999999999999": `interval expression must be '@every <n><unit>'; got "99999999999999999"`,
	} {
		_, err := cron.Translate(spec)
		require.EqualError(t, err, want, spec)
	}
}

// Last returns the same time as stepping from fire to fire.
func TestCron_Last_AsStepped(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	rand := rand.New(rand.NewPCG(1, 2))
	calendar := cron.Local{}
	for _, name := range []string{"UTC", "America/New_York", "Australia/Lord_Howe"} {
		time.Local = zone(t, name)
		for _, spec := range []string{"@every 7m", "@every 1h", "* * * * *", "*/5 1-2 * * *", "30 1 * * *", "0 0 1 * *", "*/20 * 1 * * 0"} {
			for range 40 {
				first, err := calendar.Next(spec, time.Date(2025, 10, 1, 0, 0, rand.IntN(40*86400), 0, time.Local))
				require.NoError(t, err)
				through := first.Add(time.Duration(rand.Int64N(1<<rand.IntN(20))) * time.Second)
				want := first
				for at := first; !at.After(through); {
					want = at
					at, err = calendar.Next(spec, at)
					require.NoError(t, err)
				}
				got, err := calendar.Last(spec, first, through)
				require.NoError(t, err)
				require.True(t, want.Equal(got), "%s in %s from %v through %v", spec, name, first, through)
			}
		}
	}
}

// Last is fast no matter how long nothing has fired.
func TestCron_Last_Far(t *testing.T) {
	now, second := time.Now().Truncate(time.Second), time.Unix(1, 0)
	for _, spec := range []string{"@every 1s", "* * * * * *"} {
		last, err := cron.Local{}.Last(spec, second, now)
		require.NoError(t, err)
		require.True(t, now.Equal(last), spec)
	}
	last, err := cron.Local{}.Last("@every 10s", time.Unix(math.MinInt64, 0), time.Unix(math.MaxInt64, 0))
	require.NoError(t, err)
	require.LessOrEqual(t, last.Unix(), int64(math.MaxInt64))
	require.Greater(t, last.Unix(), int64(math.MaxInt64)-10)
	_, err = cron.Local{}.Last("nonsense", second, now)
	require.Error(t, err)
}

package relay

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClassifyHTTP(t *testing.T) {
	want := map[int]Verdict{400: VerdictReject, 410: VerdictReject, 422: VerdictReject}
	for status := 200; status < 300; status++ {
		want[status] = VerdictDone
	}
	for status := range 1000 {
		require.Equal(t, want[status], ClassifyHTTP(status), "%d", status) // the zero Verdict is a retry
	}
	require.Equal(t, "retry done reject Verdict(7)",
		strings.Join([]string{VerdictRetry.String(), VerdictDone.String(), VerdictReject.String(), Verdict(7).String()}, " "))
}

func TestRetryAfter_Header(t *testing.T) {
	now := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                           0,
		"0":                          0,
		"120":                        2 * time.Minute,
		" 7 ":                        7 * time.Second,
		"-1":                         0,
		"1.5":                        0,
		"soon":                       0,
		"86401":                      maxRetryAfter,
		"99999999999999999999999999": maxRetryAfter,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
		now.AddDate(9, 0, 0).Format(http.TimeFormat):      maxRetryAfter,
		now.Add(time.Minute).Format(time.RFC850):          time.Minute,
		now.Add(time.Minute).Format(time.RFC3339):         0,
	} {
		require.Equal(t, want, retryAfter(text, now), "%q", text)
	}
}

func TestHTTPError_Quote(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		" \r\n\t ":                           "",
		"no such\r\n\torder \n":              "no such order",
		"a\x00b\x1b[31mc\u202ed":             "a b [31mc d",
		"caf\xe9 café":                       "caf café",
		strings.Repeat("x", 300):             strings.Repeat("x", 256),
		strings.Repeat("é", 200):             strings.Repeat("é", 128),
		strings.Repeat("x", 255) + " " + "y": strings.Repeat("x", 255),
	} {
		got := quote([]byte(text))
		require.Equal(t, want, got, "%q", text)
		require.True(t, utf8.ValidString(got))
	}
	require.Equal(t, "503 Service Unavailable: down", (&HTTPError{Status: 503, Answer: "down"}).Error())
	require.Equal(t, "503 Service Unavailable", (&HTTPError{Status: 503}).Error())
	require.Equal(t, "599", (&HTTPError{Status: 599}).Error())
}

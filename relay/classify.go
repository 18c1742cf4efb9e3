package relay

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Verdict says what happens to a message after an HTTP response.
type Verdict int

// The verdicts. VerdictRetry is the zero value because it is the safe choice: an unnecessary retry
// is cheap, but an unnecessary dead letter needs an operator.
const (
	VerdictRetry  Verdict = iota // temporary problem with the endpoint or the network; try again later
	VerdictDone                  // the endpoint accepted the message
	VerdictReject                // the message itself is invalid and no retry can help
)

// String returns "retry", "done" or "reject".
func (v Verdict) String() string {
	switch v {
	case VerdictRetry:
		return "retry"
	case VerdictDone:
		return "done"
	case VerdictReject:
		return "reject"
	}
	return "Verdict(" + strconv.Itoa(int(v)) + ")"
}

// ClassifyHTTP returns the verdict for an HTTP status. 2xx is [VerdictDone]; 400, 410 and 422 are
// [VerdictReject]. All other statuses, such as 401, 404, 429 and 5xx, are [VerdictRetry], because
// they may also come from a proxy, a deployment in progress or an expired token.
func ClassifyHTTP(status int) Verdict {
	switch {
	case status >= 200 && status < 300:
		return VerdictDone
	case status == http.StatusBadRequest, status == http.StatusGone, status == http.StatusUnprocessableEntity:
		return VerdictReject
	}
	return VerdictRetry
}

// HTTPError is the response from an endpoint that did not accept a message. [HTTP] wraps it with
// [Reject] or [RetryAfter] according to [ClassifyHTTP] and the Retry-After header. Use errors.As to
// retrieve it, for example to override the verdict.
type HTTPError struct {
	Status int    // such as 503
	Answer string // beginning of the body on a single line, at most 256 bytes, without unprintable characters
}

// Error implements error.
func (e *HTTPError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	if e.Answer == "" {
		return text
	}
	return text + ": " + e.Answer
}

// maxQuote is the maximum number of bytes of a response body quoted in an error.
const maxQuote = 256

// quote returns the printable characters of answer on a single line, because the text ends up in
// logs, in the database and on terminals.
func quote(answer []byte) string {
	var out strings.Builder
	gap := false
	for len(answer) > 0 {
		r, size := utf8.DecodeRune(answer)
		broken := r == utf8.RuneError && size == 1
		answer = answer[size:]
		if broken || !unicode.IsPrint(r) || r == ' ' {
			gap = true
			continue
		}
		if gap && out.Len() > 0 {
			size++
		}
		if out.Len()+size > maxQuote {
			break
		}
		if gap && out.Len() > 0 {
			out.WriteByte(' ')
		}
		gap = false
		out.WriteRune(r)
	}
	return out.String()
}

// maxRetryAfter caps the delay that an endpoint can request, because its whole partition has to
// wait.
const maxRetryAfter = 24 * time.Hour

// retryAfter parses a Retry-After header, which contains seconds or a date. It returns 0 if the
// header is missing, malformed or in the past.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if header == "" {
		return 0
	}
	if strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.Atoi(header)
		if err != nil || seconds > int(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

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

// Verdict is what the answer to a request means for its message.
type Verdict int

// The verdicts. The zero Verdict is the one for when in doubt: a retry that was not needed
// costs little, a dead letter that was not needed costs an operator's attention.
const (
	VerdictRetry  Verdict = iota // the endpoint or the way to it has a problem: try again later
	VerdictDone                  // the message was taken
	VerdictReject                // the message itself is at fault, and no retry will help
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

// ClassifyHTTP returns what an HTTP status means for the message that was sent: 2xx is
// [VerdictDone]; 400, 410 and 422 are [VerdictReject]; everything else, such as 401, 404,
// 429 and 5xx, is [VerdictRetry], since a proxy, a deployment or a token that is being
// renewed answers like that too.
func ClassifyHTTP(status int) Verdict {
	switch {
	case status >= 200 && status < 300:
		return VerdictDone
	case status == http.StatusBadRequest, status == http.StatusGone, status == http.StatusUnprocessableEntity:
		return VerdictReject
	}
	return VerdictRetry
}

// HTTPError is the answer of an endpoint that did not take a message. [HTTP] returns it,
// wrapped by [Reject] or [RetryAfter] where [ClassifyHTTP] or the answer say so: look for it
// with errors.As to decide otherwise.
type HTTPError struct {
	Status int    // such as 503
	Answer string // the beginning of the body on one line, 256 bytes at most, what cannot be printed left out
}

// Error implements error.
func (e *HTTPError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	if e.Answer == "" {
		return text
	}
	return text + ": " + e.Answer
}

// maxQuote bounds how much of an answer an error repeats.
const maxQuote = 256

// quote makes one line of what an endpoint has sent: it goes into logs, into the file and
// onto terminals.
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

// maxRetryAfter bounds what an endpoint may ask for: its partition waits as long.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads a Retry-After header, seconds or a date. 0: there is none, or none that
// can be read, or its time has come.
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

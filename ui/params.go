package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/honker-go/honker/admin"
)

// Limits on request parameters.
const (
	maxForm   = 1 << 20
	maxName   = 1024
	maxText   = 1024
	maxList   = 1000
	maxNumber = 1_000_000_000
	maxSpan   = 366 * 24 * time.Hour
)

// params holds the parameters of a request. Its methods parse parameters and record a fault for each invalid
// value. After a route's parse function has read all parameters, err reports all faults together.
type params struct {
	values url.Values
	faults []string
}

func readParams(w http.ResponseWriter, r *http.Request, post bool) (*params, error) {
	if !post {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return nil, &problem{http.StatusBadRequest, "Invalid parameters", "The query of the URL is malformed."}
		}
		return &params{values: values}, nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, &problem{http.StatusBadRequest, "Invalid parameters", "The form cannot be read: " + err.Error()}
	}
	bodyRead(w)
	return &params{values: r.PostForm}, nil
}

func (p *params) fault(name, format string, args ...any) {
	p.faults = append(p.faults, name+": "+fmt.Sprintf(format, args...))
}

// err returns an error that lists the recorded faults, or nil.
func (p *params) err() error {
	if len(p.faults) == 0 {
		return nil
	}
	return &problem{http.StatusBadRequest, "Invalid parameters", strings.Join(p.faults, "; ")}
}

// one returns the value of a parameter that must not be repeated. It returns "" if the parameter is
// absent.
func (p *params) one(name string) string {
	values := p.values[name]
	if len(values) > 1 {
		p.fault(name, "must be given once, but is given %d times", len(values))
		return ""
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// text returns a parameter of at most limit bytes of UTF-8.
func (p *params) text(name string, limit int) string { return p.checkText(name, p.one(name), limit) }

func (p *params) checkText(name, s string, limit int) string {
	switch {
	case len(s) > limit:
		p.fault(name, "must have at most %d bytes, but has %d", limit, len(s))
	case isNoText(s):
		p.fault(name, "must be UTF-8 text")
	default:
		return s
	}
	return ""
}

// isNoText reports whether s is invalid as a parameter because it contains invalid UTF-8 or NUL.
func isNoText(s string) bool { return !utf8.ValidString(s) || strings.ContainsRune(s, 0) }

// name returns a required text parameter.
func (p *params) name(name string) string {
	s := p.text(name, maxName)
	if s == "" && len(p.faults) == 0 {
		p.fault(name, "is missing")
	}
	return s
}

// texts returns the non-empty values of a parameter that may be repeated.
func (p *params) texts(name string, limit int) (texts []string) {
	values := p.values[name]
	if len(values) > limit {
		p.fault(name, "may be given at most %d times, but is given %d times", limit, len(values))
		return nil
	}
	for _, v := range values {
		if v := p.checkText(name, v, maxName); v != "" {
			texts = append(texts, v)
		}
	}
	return texts
}

// integer returns an integer from low to high, or def if the parameter is absent.
func (p *params) integer(name string, low, high, def int64) int64 {
	s := p.one(name)
	if s == "" {
		return def
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		p.fault(name, "must be a number from %d to %d", low, high)
		return def
	}
	return n
}

// id returns a required positive ID.
func (p *params) id(name string) int64 {
	n := p.integer(name, 1, 1<<62, 0)
	if n == 0 && len(p.faults) == 0 {
		p.fault(name, "is missing")
	}
	return n
}

// ids returns the IDs in a parameter, which may be repeated and may contain commas.
func (p *params) ids(name string) (ids []int64) {
	for _, value := range p.values[name] {
		for s := range strings.SplitSeq(value, ",") {
			if s = strings.TrimSpace(s); s == "" {
				continue
			}
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 1 {
				p.fault(name, "must be an id")
				return nil
			}
			ids = append(ids, n)
			if len(ids) > maxList {
				p.fault(name, "may have at most %d values", maxList)
				return nil
			}
		}
	}
	return ids
}

// span returns a non-negative duration. The parameter may be a duration such as 10m or a number of
// seconds.
func (p *params) span(name string) time.Duration {
	s := p.one(name)
	if s == "" {
		return 0
	}
	d, err := admin.ParseSpan(s)
	if err != nil || d > maxSpan {
		p.fault(name, "must be a duration such as 90s, 10m, 2h or 3d")
		return 0
	}
	return d
}

// instant returns a point in time. The parameter may be in the format of a browser's datetime field (in UTC),
// in RFC 3339 format, or a duration before now.
func (p *params) instant(name string, now time.Time) time.Time {
	s := p.one(name)
	if s == "" {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC()
		}
	}
	if d, err := admin.ParseSpan(s); err == nil && d <= maxSpan {
		return now.Add(-d).UTC().Truncate(time.Second)
	}
	p.fault(name, "must be a time in UTC such as 2026-11-23T16:30, or a duration such as 2h for two hours ago")
	return time.Time{}
}

// choice returns a parameter whose value must be in words. It returns words[0] if the parameter is
// absent.
func (p *params) choice(name string, words ...string) string {
	s := p.one(name)
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, s) {
		p.fault(name, "must be one of %s", strings.Join(words, ", "))
		return words[0]
	}
	return s
}

// flag reports whether a checkbox was checked.
func (p *params) flag(name string) bool { return p.choice(name, "", "1") == "1" }

// pairs returns the values of a parameter of the form name=value, such as order.id=17.
func (p *params) pairs(name string) map[string]string {
	of := map[string]string{}
	for _, s := range p.texts(name, 10) {
		key, value, ok := strings.Cut(s, "=")
		if key = strings.TrimSpace(key); !ok || key == "" || strings.ContainsAny(key, "\"\\") {
			p.fault(name, "must be a name and a value such as order.id=17")
			return nil
		}
		of[key] = strings.TrimSpace(value)
	}
	if len(of) == 0 {
		return nil
	}
	return of
}

package main

import (
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Request is a parsed line of the log and the payload of an event.
type Request struct {
	Line   int64      `json:"line"` // line number in the log, from 1
	IP     netip.Addr `json:"ip"`
	Time   time.Time  `json:"time"`
	Method string     `json:"method"`
	Path   string     `json:"path"` // without the query string
	Status int        `json:"status"`
	Bytes  int64      `json:"bytes"`
	Agent  string     `json:"agent"`
}

// key returns the key of the event: the path of a successful request, or the status of a failed
// one.
func (r Request) key() string {
	if r.failed() {
		return strconv.Itoa(r.Status)
	}
	return r.Path
}

func (r Request) failed() bool { return r.Status >= 400 }

// broken reports whether the request failed with a server error. alarmOptions select the same
// events by their key.
func (r Request) broken() bool { return r.Status >= 500 }

var errMalformed = errors.New("malformed line")

// combined matches the combined log format of Apache and NGINX. Both escape quotes and unprintable
// characters in quoted fields.
var combined = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\] ` +
	`"([A-Z]+) (\S+) HTTP/[0-9.]+" ([1-5][0-9]{2}) ([0-9]+|-) "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)"$`)

// parseRequest parses a line without its line break. number is the line number in the log.
func parseRequest(line string, number int64) (Request, error) {
	m := combined.FindStringSubmatch(strings.ToValidUTF8(line, "\uFFFD"))
	if m == nil {
		return Request{}, errMalformed
	}
	ip, err := netip.ParseAddr(m[1])
	if err != nil {
		return Request{}, errMalformed
	}
	at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
	if err != nil {
		return Request{}, errMalformed
	}
	status, _ := strconv.Atoi(m[5])            // three digits
	bytes, _ := strconv.ParseInt(m[6], 10, 64) // "-" is 0
	return Request{
		Line: number, IP: ip, Time: at.UTC(), Method: m[3], Path: shortPath(m[4]),
		Status: status, Bytes: bytes, Agent: m[7],
	}, nil
}

// mostPath is the maximum length of a path in bytes. Scanners request very long paths, and keys
// have a limited size.
const mostPath = 200

func shortPath(target string) string {
	path, _, _ := strings.Cut(target, "?")
	path = strings.ReplaceAll(path, "\x00", "\uFFFD") // keys cannot contain NUL
	if len(path) > mostPath {
		path = strings.ToValidUTF8(path[:mostPath], "")
	}
	return path
}

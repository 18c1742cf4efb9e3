package main

import (
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Request is a line of the log, and the data of its event.
type Request struct {
	Line   int64      `json:"line"` // of the log, from 1
	IP     netip.Addr `json:"ip"`
	Time   time.Time  `json:"time"`
	Method string     `json:"method"`
	Path   string     `json:"path"` // without the query
	Status int        `json:"status"`
	Bytes  int64      `json:"bytes"`
	Agent  string     `json:"agent"`
}

// key is what filters look at: the path of a request that went well, the status of one
// that did not.
func (r Request) key() string {
	if r.failed() {
		return strconv.Itoa(r.Status)
	}
	return r.Path
}

func (r Request) failed() bool { return r.Status >= 400 }

// broken says that it was our fault; alarmOptions say the same of the key.
func (r Request) broken() bool { return r.Status >= 500 }

var errMalformed = errors.New("malformed line")

// combined is the format that Apache and NGINX call so. Within quotes they escape
// quotes and what does not print.
var combined = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\] ` +
	`"([A-Z]+) (\S+) HTTP/[0-9.]+" ([1-5][0-9]{2}) ([0-9]+|-) "(?:[^"\\]|\\.)*" "((?:[^"\\]|\\.)*)"$`)

// parseRequest reads a line, without its end, that stands in the log under number.
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

// mostPath is what is kept of a path: scanners send long ones, and a key is bounded.
const mostPath = 200

func shortPath(target string) string {
	path, _, _ := strings.Cut(target, "?")
	path = strings.ReplaceAll(path, "\x00", "\uFFFD") // a key has none
	if len(path) > mostPath {
		path = strings.ToValidUTF8(path[:mostPath], "")
	}
	return path
}

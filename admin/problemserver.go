package admin

import (
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// server reports the problems that only a database server has.
func (s *search) server(t *row.Troubles) {
	for _, b := range t.Blocked {
		n := honker.Count{N: b.N}
		s.add(Problem{Code: ProblemBlocked, Name: b.By, N: n, Since: b.Since,
			Text: fmt.Sprintf("%s keeps %s waiting for its locks%s", b.By, counted(n, "session"), statement(b.Query))})
	}
	for _, x := range t.Snapshots {
		n := honker.Count{N: x.Dead}
		s.add(Problem{Code: ProblemSnapshot, Name: x.Of, N: n, Since: x.Since,
			Text: fmt.Sprintf("%s has an old snapshot, so vacuum cannot remove %s%s", x.Of, counted(n, "deleted job"), statement(x.Query))})
	}
	if v := t.Unvacuumed; v != nil {
		n, text := honker.Count{N: v.Dead}, "autovacuum has not removed "
		if v.Off {
			text = "autovacuum is off for the table of jobs, which has "
		}
		s.add(Problem{Code: ProblemVacuum, N: n, Since: v.Since, Text: text + counted(n, "deleted job")})
	}
	for _, x := range t.Standbys {
		s.add(s.standby(x))
	}
	if c := t.Connections; c != nil {
		s.add(Problem{Code: ProblemConnections, N: honker.Count{N: c.Used},
			Text: fmt.Sprintf("the server has few connections left: %d of %d are used", c.Used, c.Most)})
	}
	if t.Unseen > 0 {
		s.add(Problem{Code: ProblemRights, N: honker.Count{N: t.Unseen},
			Text: "the role may not see the sessions of other roles, so it is unknown who holds old snapshots and locks"})
	}
}

// statement returns the last part of a sentence about a session.
func statement(query string) string {
	if query == "" {
		return ""
	}
	return "; its last statement begins with " + query
}

func (s *search) standby(x row.Standby) Problem {
	p := Problem{Code: ProblemStandby, Name: x.Name, N: honker.Count{N: x.Behind}}
	switch {
	case x.Away:
		p.Text = fmt.Sprintf("%s is not connected, and the server keeps %s of its log for it", x.Name, FormatSize(x.Behind))
	case x.Lag > 0:
		p.Since = s.now.Add(-x.Lag)
		p.Text = fmt.Sprintf("%s is %s and %s of the log behind", x.Name, x.Lag.Round(time.Second), FormatSize(x.Behind))
	default:
		p.Text = fmt.Sprintf("%s is %s of the log behind", x.Name, FormatSize(x.Behind))
	}
	return p
}

// notices reports that this process has to ask for commits of other processes.
func (s *search) notices() {
	b, ok := s.engine.Backend.(engine.Notified)
	if !ok {
		return
	}
	if since, why := b.DeafSince(); !since.IsZero() {
		s.add(Problem{Code: ProblemNotices, Since: s.now.Add(-time.Since(since)), // since is a time of the process's clock
			Text: fmt.Sprintf("notices of commits do not reach this process, so it polls: %v", why)})
	}
}

package admin

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/disk"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func (s *search) schedules(ctx context.Context, all []row.Late) error {
	if len(all) == 0 {
		return nil
	}
	leader, err := s.leader(ctx, row.SchedulerLock)
	why := "no process runs the scheduler"
	if leader != "" {
		why = "the leader " + leader + " does not fire it"
	}
	for _, l := range all {
		s.add(Problem{Code: ProblemOverdue, Name: l.Name, Since: l.At, Text: "schedule " + l.Name + " is overdue: " + why})
	}
	return err
}

// leader returns the lock's owner, or "" if the lock is free.
func (s *search) leader(ctx context.Context, lock string) (string, error) {
	held, err := s.engine.Stores.Locks.Held(ctx, s.q, lock, s.now)
	if err != nil || len(held) == 0 {
		return "", err
	}
	return held[0].Owner, nil
}

// server reports the problems that only a database server has.
func (s *search) server(t *row.Troubles) {
	for _, b := range t.Blocked {
		n := honker.Count{N: b.N}
		s.add(Problem{Code: ProblemBlocked, Name: b.By, N: n, Since: b.Since,
			Text: fmt.Sprintf("%s keeps %s waiting for its locks", b.By, counted(n, "session"))})
	}
	for _, x := range t.Snapshots {
		n := honker.Count{N: x.Dead}
		s.add(Problem{Code: ProblemSnapshot, Name: x.Of, N: n, Since: x.Since,
			Text: fmt.Sprintf("%s has an old snapshot, so vacuum cannot remove %s", x.Of, counted(n, "deleted job"))})
	}
	if v := t.Unvacuumed; v != nil {
		n, text := honker.Count{N: v.Dead}, "autovacuum has not removed "
		if v.Off {
			text = "autovacuum is off for the table of jobs, which has "
		}
		s.add(Problem{Code: ProblemVacuum, N: n, Since: v.Since, Text: text + counted(n, "deleted job")})
	}
}

// consumers reports consumers and groups that aren't reading their events. It uses ProblemPinned if
// unread events are kept beyond the topic's retention.
func (s *search) consumers(all []row.Behind) {
	for _, b := range all {
		p := Problem{Code: ProblemBehind, Topic: b.Topic, Name: b.Name, Since: b.Oldest, N: honker.Count(b.Unseen)}
		p.Text = fmt.Sprintf("%s: %s %s has not read %s", b.Topic, b.Kind, b.Name, counted(p.N, "event"))
		switch {
		case b.Kind == "group":
			p.Text += ", and has no live member"
		case !b.Acked.IsZero():
			p.Since = later(p.Since, b.Acked)
			p.Text += ", and has not saved its offset"
		}
		if b.Pins {
			p.Code = ProblemPinned
			p.Text += "; the topic keeps them beyond its retention"
		}
		s.add(p)
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// clock reports a problem if the newest job or event has a creation time in the future, according
// to this machine's clock.
func (s *search) clock(newest time.Time) {
	if newest.Sub(s.now) <= clockAhead {
		return
	}
	s.add(Problem{Code: ProblemClock,
		Text: fmt.Sprintf("the newest job or event was created at %s, which is in the future for the clock of this machine", newest.UTC().Format(time.RFC3339))})
}

// log checks the size of the write-ahead log.
func (s *search) log() {
	limit := s.engine.WALLimit
	f, err := s.engine.File("problems")
	if err != nil || limit < 0 || f.LogSize() <= limit {
		return // without a log there is no problem
	}
	size := f.LogSize()
	s.add(Problem{Code: ProblemWAL, N: honker.Count{N: size},
		Text: fmt.Sprintf("the write-ahead log has %s, more than its limit of %s", FormatSize(size), FormatSize(limit))})
}

func (s *search) disk() {
	f, err := s.engine.File("problems")
	if err != nil {
		return // a database without a file has no disk that this process can see
	}
	free, size, err := disk.Space(filepath.Dir(f.Path()))
	if err != nil || free >= diskLeft && (free >= size/diskShare || free >= diskEnough) {
		return // unknown sizes are not reported
	}
	s.add(Problem{Code: ProblemDisk, N: honker.Count{N: free},
		Text: fmt.Sprintf("the disk is nearly full: %s of %s are free", FormatSize(free), FormatSize(size))})
}

// maintenance reports pending maintenance work if no process runs Maintain.
func (s *search) maintenance(ctx context.Context, stats []engine.QueueStats) error {
	leader, err := s.leader(ctx, row.MaintenanceLock)
	if err != nil || leader != "" {
		return err
	}
	topics, queues, err := s.engine.Stores.Problems.Retains(ctx, s.q)
	var expired honker.Count
	for _, st := range stats {
		expired.N, expired.More = expired.N+st.Expired.N, expired.More || st.Expired.More
	}
	var left []string
	add := func(c honker.Count, noun, what string) {
		if c != (honker.Count{}) {
			left = append(left, counted(c, noun)+what)
		}
	}
	add(expired, "expired job", " to dead-letter")
	add(honker.Count{N: topics}, "topic", " with a retention")
	add(honker.Count{N: queues}, "queue", " with a retention")
	if err != nil || left == nil {
		return err
	}
	s.add(Problem{Code: ProblemNotMaintained, N: expired, Text: "no process runs Maintain, but there is work for it: " + strings.Join(left, ", ")})
	return nil
}

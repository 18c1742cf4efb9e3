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
		s.add(Problem{Code: ProblemOverdue, Name: l.Name, Since: l.At, Text: "schedule " + l.Name + " is overdue: " + why,
			Actions: []Action{{Verb: ActionTriggerSchedule, Name: l.Name}}})
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

// disk checks the free space of the disk. If there is little, it names the largest part of the file that a retention bounds.
func (s *search) disk(ctx context.Context) error {
	f, err := s.engine.File("problems")
	if err != nil {
		return nil // a database without a file has no disk that this process can see
	}
	free, size, err := disk.Space(filepath.Dir(f.Path()))
	if err != nil || free >= diskLeft && (free >= size/diskShare || free >= diskEnough) {
		return nil // unknown sizes are not reported
	}
	p := Problem{Code: ProblemDisk, N: honker.Count{N: free},
		Text: fmt.Sprintf("the disk is nearly full: %s of %s are free", FormatSize(free), FormatSize(size))}
	all, err := s.engine.Stores.Sizes.Sizes(ctx, s.q)
	if err != nil {
		return err
	}
	if part, ok := sizesOf(all).largest(); ok {
		p.Cause, p.Actions = part.text(), []Action{part.bound()}
	}
	p.Actions = append(p.Actions, Action{Verb: ActionShowSizes})
	s.add(p)
	return nil
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

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// standing is the progress of a consumer or group.
type standing struct {
	name                  string
	offset, lag           int64
	group                 bool
	leased, reclaim, dead int64
	members               int
}

// open returns the number of events still to be handled.
func (s standing) open() int64 { return s.lag + s.leased + s.reclaim }

// standings is the progress of all consumers.
type standings struct {
	at   place
	head int64
	all  []standing
}

func (s standings) idle() bool {
	for _, name := range everybody {
		if s.of(name, 1).open() > 0 {
			return false
		}
	}
	return true
}

// of returns name's progress. A consumer that is not known yet still has all events ahead of it.
func (s standings) of(name string, all int64) standing {
	for _, one := range s.all {
		if one.name == name {
			return one
		}
	}
	return standing{name: name, lag: all}
}

func readStandings(ctx context.Context, f *feed) (s standings, err error) {
	if s.at, err = readPlace(ctx, f.db.SQL()); err != nil {
		return s, err
	}
	if s.head, err = f.access.Head(ctx); err != nil {
		return s, err
	}
	if err = s.addConsumers(ctx, f); err != nil {
		return s, err
	}
	return s, s.addGroups(ctx, f)
}

// addConsumers needs two queries, because a consumer belongs to the topic or pattern that it reads.
func (s *standings) addConsumers(ctx context.Context, f *feed) error {
	both, err := f.access.Consumers(ctx)
	if err != nil {
		return err
	}
	failed, err := f.failed.Consumers(ctx)
	for _, c := range append(both, failed...) {
		s.all = append(s.all, standing{name: c.Name, offset: c.Offset, lag: c.Lag})
	}
	return err
}

func (s *standings) addGroups(ctx context.Context, f *feed) error {
	groups, err := f.access.Groups(ctx)
	for _, g := range groups {
		s.all = append(s.all, standing{
			name: g.Name, offset: g.LowWater, lag: g.Lag, group: true,
			leased: g.Leased, reclaim: g.Reclaim, dead: g.Dead, members: len(g.Members),
		})
	}
	return err
}

// display shows the progress. On a terminal it redraws a few lines in place; elsewhere it prints a
// line every half second.
type display struct {
	w        io.Writer
	terminal bool
	lines    int // number of lines drawn by the last redraw
	shown    time.Time
	last     int64 // value of place.lines at that time
	rate     float64
}

func newDisplay(w io.Writer) *display {
	return &display{w: w, terminal: isTerminal(w), shown: time.Now(), last: -1}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (d *display) show(s standings, last bool) {
	if d.last < 0 {
		d.last = s.at.lines // ignore the lines of earlier runs
	}
	due := time.Since(d.shown) >= 500*time.Millisecond
	if due {
		d.rate = float64(s.at.lines-d.last) / time.Since(d.shown).Seconds()
		d.shown, d.last = time.Now(), s.at.lines
	}
	switch {
	case d.terminal:
		d.redraw(d.table(s))
	case due || last:
		fmt.Fprintln(d.w, d.line(s))
	}
}

// redraw moves the cursor up to the first line of the previous drawing and overwrites it.
func (d *display) redraw(lines []string) {
	if d.lines > 0 {
		fmt.Fprintf(d.w, "\x1b[%dA", d.lines)
	}
	for _, line := range lines {
		fmt.Fprintf(d.w, "\r%s\x1b[K\n", line)
	}
	fmt.Fprint(d.w, "\x1b[J")
	d.lines = len(lines)
}

func (d *display) table(s standings) []string {
	out := []string{
		fmt.Sprintf("line %d   head %d   %.0f lines/s", s.at.lines, s.head, d.rate),
		fmt.Sprintf("%-10s %8s %6s %7s %8s %5s", "", "offset", "lag", "leased", "reclaim", "dead"),
	}
	for _, one := range s.all {
		line := fmt.Sprintf("%-10s %8d %6d", one.name, one.offset, one.lag)
		if one.group {
			line += fmt.Sprintf(" %7d %8d %5d   %d members", one.leased, one.reclaim, one.dead, one.members)
		}
		out = append(out, line)
	}
	return out
}

func (d *display) line(s standings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "line %4d  head %4d  %4.0f/s", s.at.lines, s.head, d.rate)
	for _, one := range s.all {
		fmt.Fprintf(&b, " | %s %d lag %d", one.name, one.offset, one.lag)
		if one.group {
			fmt.Fprintf(&b, " leased %d reclaim %d dead %d", one.leased, one.reclaim, one.dead)
		}
	}
	return b.String()
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// standing is the progress of a customer's webhooks.
type standing struct {
	name               string
	delivered, waiting int64
	lastError          string
	next               time.Time // time of the next attempt; zero if there is no wait
}

func readStandings(ctx context.Context, s *shop) (all []standing, err error) {
	info, err := s.hooks.Info(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range s.customers {
		p := info.Partitions[s.hooks.Partition(c.name)]
		all = append(all, standing{c.name, p.Processed, p.Waiting, p.LastError, p.RetryAt})
	}
	return all, nil
}

func waitingOf(all []standing) (n int64) {
	for _, one := range all {
		n += one.waiting
	}
	return n
}

// display prints a line per customer. On a terminal it updates the lines in place; otherwise it
// prints them once a second.
type display struct {
	w        io.Writer
	terminal bool
	drawn    int // lines drawn on the terminal
	shown    time.Time
}

func newDisplay(w io.Writer) *display { return &display{w: w, terminal: isTerminal(w)} }

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (d *display) show(all []standing, last bool) {
	now := time.Now()
	if !d.terminal && !last && now.Sub(d.shown) < time.Second {
		return
	}
	d.shown = now
	if d.terminal && d.drawn > 0 { // move up to the first line of the previous drawing
		fmt.Fprintf(d.w, "\x1b[%dA", d.drawn)
	}
	d.drawn = len(all)
	for _, one := range all {
		if d.terminal {
			fmt.Fprint(d.w, "\r\x1b[K") // clear the line
		}
		fmt.Fprintln(d.w, one.line(now))
	}
	if !d.terminal {
		fmt.Fprintln(d.w)
	}
}

func (s standing) line(now time.Time) string {
	line := fmt.Sprintf("%-5s delivered %4d  waiting %4d", s.name, s.delivered, s.waiting)
	if s.lastError == "" {
		return line
	}
	const most = 70 // runes of the error, so that it fits on a line
	if text := []rune(s.lastError); len(text) > most {
		s.lastError = string(text[:most-1]) + "…"
	}
	line += "  " + s.lastError
	if wait := s.next.Sub(now); wait > 0 {
		line += fmt.Sprintf(", next try in %.1fs", wait.Seconds())
	}
	return line
}

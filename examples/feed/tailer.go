package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
)

const (
	sqlPlace = `SELECT bytes, lines, malformed FROM place`

	// Only from where this process left it.
	sqlMove = `UPDATE place SET bytes = ?1, lines = ?2, malformed = ?3 WHERE bytes = ?4`
)

// place is how far the log is published.
type place struct{ bytes, lines, malformed int64 }

func readPlace(ctx context.Context, db *sql.DB) (p place, err error) {
	return p, db.QueryRowContext(ctx, sqlPlace).Scan(&p.bytes, &p.lines, &p.malformed)
}

// tailer publishes the lines of the log. Its place moves in the transaction of their
// events: whatever dies, no line is lost or published twice.
type tailer struct {
	db         *honker.DB
	ok, failed *honker.Stream[Request]
	log        string
	rate       int
	follow     bool
	at         place
	ended      atomic.Bool // the end of the log is published, and the log is not followed
}

var (
	errShrunk = errors.New("the log is shorter than what was read of it: rotation is not handled")
	errTwo    = errors.New("another process reads the log into this database")
)

// run reads on from the place in the database. It ends at the end of the log, or, if it
// is to follow, with ctx.
func (t *tailer) run(ctx context.Context) error {
	file, err := t.open(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer file.Close()
	lines := &lineReader{r: bufio.NewReader(file)}
	pace := newPace(t.rate)
	for ctx.Err() == nil {
		batch, err := lines.next(pace.size)
		if err != nil {
			return err
		}
		if len(batch) == 0 && !t.follow {
			t.ended.Store(true)
			return nil
		}
		if err := t.publish(context.WithoutCancel(ctx), batch); err != nil { // what has begun is finished
			return err
		}
		pace.wait(ctx, len(batch) == 0)
	}
	return nil
}

func (t *tailer) open(ctx context.Context) (*os.File, error) {
	var err error
	if t.at, err = readPlace(ctx, t.db.SQL()); err != nil {
		return nil, err
	}
	file, err := os.Open(t.log)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() < t.at.bytes {
		err = errShrunk
	}
	if err == nil {
		_, err = file.Seek(t.at.bytes, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// publish publishes a batch and moves the place behind it, or does neither.
func (t *tailer) publish(ctx context.Context, batch []string) error {
	if len(batch) == 0 {
		return nil
	}
	next := t.at
	err := t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, line := range batch {
			if err := t.publishLine(ctx, tx, &next, line); err != nil {
				return fmt.Errorf("line %d: %w", next.lines, err)
			}
		}
		return t.move(ctx, tx, next)
	})
	if err == nil {
		t.at = next
	}
	return err
}

func (t *tailer) publishLine(ctx context.Context, tx *sql.Tx, at *place, line string) error {
	at.bytes += int64(len(line))
	at.lines++
	r, err := parseRequest(strings.TrimRight(line, "\r\n"), at.lines)
	if errors.Is(err, errMalformed) {
		at.malformed++
		return nil
	}
	topic := t.ok
	if r.failed() {
		topic = t.failed
	}
	_, err = topic.PublishTx(ctx, tx, r, honker.EventKey(r.key()))
	return err
}

// move refuses when the place is not where this process left it.
func (t *tailer) move(ctx context.Context, tx *sql.Tx, to place) error {
	done, err := tx.ExecContext(ctx, sqlMove, to.bytes, to.lines, to.malformed, t.at.bytes)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errTwo, err)
	}
	return nil
}

// lineReader reads a file that may be growing: a line is one when its end is written.
type lineReader struct {
	r    *bufio.Reader
	part string // of a line
}

// next returns up to n lines, none at the end of the file.
func (l *lineReader) next(n int) (batch []string, err error) {
	for len(batch) < n {
		text, err := l.r.ReadString('\n')
		l.part += text
		if errors.Is(err, io.EOF) {
			return batch, nil
		}
		if err != nil {
			return nil, err
		}
		batch = append(batch, l.part)
		l.part = ""
	}
	return batch, nil
}

// pace says how many lines go into a transaction, and waits after each.
type pace struct {
	size  int
	pause time.Duration // 0: as fast as it goes
	next  time.Time
}

const (
	batchesPerSecond = 50
	fastBatch        = 100
	look             = 50 * time.Millisecond // how often a file is looked at that may grow
)

func newPace(rate int) *pace {
	if rate == 0 {
		return &pace{size: fastBatch}
	}
	size := max(1, rate/batchesPerSecond)
	pause := time.Second * time.Duration(size) / time.Duration(rate)
	return &pace{size: size, pause: pause, next: time.Now().Add(pause)}
}

// wait is longer, and the time is not made up for, when there was nothing to read.
func (p *pace) wait(ctx context.Context, idle bool) {
	until := p.next
	p.next = p.next.Add(p.pause)
	if idle {
		until = time.Now().Add(look)
		p.next = until
	}
	select {
	case <-time.After(time.Until(until)):
	case <-ctx.Done():
	}
}

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

	// sqlMove updates no row if another process has moved the place.
	sqlMove = `UPDATE place SET bytes = ?1, lines = ?2, malformed = ?3 WHERE bytes = ?4`
)

// place is the position in the log up to which lines have been published.
type place struct{ bytes, lines, malformed int64 }

func readPlace(ctx context.Context, db *sql.DB) (p place, err error) {
	return p, db.QueryRowContext(ctx, sqlPlace).Scan(&p.bytes, &p.lines, &p.malformed)
}

// tailer publishes the lines of the log. It advances the place in the transaction that publishes
// the events, so no crash can lose or repeat a line.
type tailer struct {
	db         *honker.DB
	ok, failed *honker.Stream[Request]
	log        string
	rate       int
	follow     bool
	at         place
	ended      atomic.Bool // the whole log is published and is not being followed
}

var (
	errShrunk = errors.New("the log has become shorter; rotation is not supported")
	errTwo    = errors.New("another process publishes the log to this database")
)

// run publishes lines, starting from the place stored in the database. It returns at the end of the
// log, or when ctx is done if the log is followed.
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
		if err := t.publish(context.WithoutCancel(ctx), batch); err != nil { // finish the batch even if ctx is done
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

// publish publishes a batch and advances the place in a single transaction.
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

// move advances the place. It returns errTwo if another process has moved it.
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

// lineReader reads complete lines from a file that may be growing.
type lineReader struct {
	r    *bufio.Reader
	part string // beginning of an incomplete line
}

// next returns up to n lines, or none at the end of the file.
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

// pace limits the rate: it sets the batch size and the pause after each batch.
type pace struct {
	size  int
	pause time.Duration // 0 for no limit
	next  time.Time
}

const (
	batchesPerSecond = 50
	fastBatch        = 100
	look             = 50 * time.Millisecond // interval at which a followed file is polled
)

func newPace(rate int) *pace {
	if rate == 0 {
		return &pace{size: fastBatch}
	}
	size := max(1, rate/batchesPerSecond)
	pause := time.Second * time.Duration(size) / time.Duration(rate)
	return &pace{size: size, pause: pause, next: time.Now().Add(pause)}
}

// wait waits until the next batch is due. If idle, it waits for the polling interval, and the pace
// does not catch up afterwards.
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

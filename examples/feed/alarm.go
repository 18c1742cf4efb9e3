package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/honker-go/honker"
)

// alarmOptions select server errors by key. The loop saves the offset from time to time, because
// the alarm has no transaction to save it in.
var alarmOptions = &honker.SubscribeOptions{
	Filter:       honker.KeyPrefix("5"),
	SaveInterval: 200 * time.Millisecond,
}

// alarm writes a line per alert to a file, which is not covered by a transaction. After a kill,
// some events are delivered a second time. Each line therefore starts with its event's offset, and
// the last line shows which events are already in the file.
type alarm struct {
	file *os.File
	last int64 // offset of the last event written
}

// openAlarm opens the file at path for appending and removes an incomplete last line left by a
// kill. If fresh is true, it empties the file.
func openAlarm(path string, fresh bool) (*alarm, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if fresh {
		whole = nil
	}
	if len(whole) < len(text) {
		if err := os.Truncate(path, int64(len(whole))); err != nil {
			return nil, err
		}
	}
	offsets, err := alerts(whole)
	if err != nil {
		return nil, err
	}
	a := &alarm{}
	if n := len(offsets); n > 0 {
		a.last = offsets[n-1]
	}
	a.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	return a, err
}

// alerts returns the offsets of the events in a file of alerts.
func alerts(text []byte) (offsets []int64, err error) {
	for line := range bytes.Lines(text) {
		var offset int64
		if _, err := fmt.Sscan(string(line), &offset); err != nil {
			return nil, fmt.Errorf("alert %q: %w", line, err)
		}
		offsets = append(offsets, offset)
	}
	return offsets, nil
}

// run writes an alert for each event that is not yet in the file, until ctx is done.
func (a *alarm) run(ctx context.Context, failed *honker.Stream[Request]) error {
	for e, err := range failed.Subscribe(ctx, alarmName, alarmOptions) {
		if err == nil {
			err = a.write(e)
		}
		if err != nil {
			return err
		}
	}
	return nil // the loop ends with ctx
}

func (a *alarm) write(e *honker.Event[Request]) error {
	if e.Offset <= a.last {
		return nil // written before a kill
	}
	r := e.Data
	_, err := fmt.Fprintf(a.file, "%d %s %d %s %s %v\n", e.Offset, r.Time.Format(time.DateTime), r.Status, r.Method, r.Path, r.IP)
	if err == nil {
		a.last = e.Offset
	}
	return err
}

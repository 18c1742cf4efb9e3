package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker/relay"
)

const (
	haul           = 1_000_000 // messages
	haulPartitions = 16
	haulLease      = 2 * time.Second
	killEvery      = time.Second
)

var haulMetrics = []Metric{
	{"rate", "messages/s", true}, {"kills", "", true}, {"delivered again", "", false}, {"RSS growth", "MiB", false},
}

// haulCase delivers a million messages with two processes while more messages are sent. A process
// is killed every second and restarted. The other stays, and its memory is measured.
func haulCase() Case {
	name := fmt.Sprintf("%s messages, 2 processes, a kill each second", thousands(haul))
	return Case{Name: name, Durability: Normal, Once: true, Metrics: haulMetrics, Turn: func(ctx context.Context, t *Turn) ([]float64, error) {
		if t.Name != honkerName {
			return nil, fmt.Errorf("%w: has no leases to outlive a process", errNA)
		}
		q, _, path, err := relayFile(ctx, t, haulPartitions)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		h := &hauling{task: task{Do: "haul", Contestant: t.Name, Path: path, Durability: t.Durability}, q: q, n: t.scaled(haul)}
		perSecond, err := h.run(ctx)
		if err != nil {
			return nil, err
		}
		again, err := verifyHaul(ctx, q, journalOf(path), h.n)
		return []float64{perSecond, float64(h.kills), float64(again), h.grown}, err
	}}
}

// hauling is a running long haul.
type hauling struct {
	task
	q     Queue
	n     int
	kills int
	grown float64 // MiB, of the process that stays
}

// run sends the messages while they are delivered, and returns the number delivered per second.
func (h *hauling) run(ctx context.Context) (perSecond float64, err error) {
	stays, err := startChild(ctx, h.task)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	sending := make(chan error, 1)
	go func() { sending <- h.send(ctx) }()
	err = errors.Join(h.killUntilDone(ctx, stays.cmd.Process.Pid), <-sending)
	perSecond = float64(h.n) / time.Since(began).Seconds()
	return perSecond, errors.Join(err, stays.end())
}

func (h *hauling) send(ctx context.Context) error {
	const most = 1000 // per transaction
	for sent := 0; sent < h.n; sent += most {
		if err := fillRelay(ctx, h.q, "bench", haulPartitions, sent, min(most, h.n-sent)); err != nil {
			return err
		}
	}
	return nil
}

// killUntilDone kills processes until all messages are delivered. It measures the memory of the
// process that stays.
func (h *hauling) killUntilDone(ctx context.Context, stays int) error {
	var first float64
	for done := false; !done; {
		victim, err := startChild(ctx, h.task)
		if err != nil {
			return err
		}
		done, err = h.doneWithin(ctx, killEvery)
		if !done {
			h.kills++
		}
		_ = victim.cmd.Process.Kill()
		_ = victim.end() // returns the error of the kill
		if err != nil {
			return err
		}
		memory := memoryOf(stays)
		if h.kills == 2 {
			first = memory
		}
		if h.kills > 2 {
			h.grown = max(h.grown, memory-first)
		}
	}
	return nil
}

// doneWithin reports whether all messages are finished within limit.
func (h *hauling) doneWithin(ctx context.Context, limit time.Duration) (bool, error) {
	for began := time.Now(); time.Since(began) < limit; time.Sleep(50 * time.Millisecond) {
		finished, err := processed(ctx, h.q)
		sum := 0
		for _, n := range finished {
			sum += int(n)
		}
		if err != nil || sum >= h.n {
			return true, err
		}
	}
	return false, nil
}

// journalOf returns the path of the file in which processes log their deliveries.
func journalOf(path string) string { return filepath.Join(filepath.Dir(path), "journal") }

// Kinds of a haulEntry.
const (
	deliversEntry int32 = iota + 1 // a batch is about to be handled
	finishedEntry                  // its progress was saved
)

// haulEntry is an entry of the journal. Entries have 32 bytes and so never cross a page boundary: a
// process that is killed has written all of an entry or none of it. All processes append to the
// same file, so the entries are in the order of the events.
type haulEntry struct {
	Kind, Partition int32
	Epoch           int64
	First, Count    int64 // message numbers; a finishedEntry has only Count
}

// haul delivers messages until it is killed or stopped.
func (t task) haul(ctx context.Context, c Contestant) error {
	q, err := c.Open(ctx, t.Path, t.Durability)
	if err != nil {
		return err
	}
	defer q.Close()
	journal, err := os.OpenFile(journalOf(t.Path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer journal.Close()
	note := func(e haulEntry) error {
		line, err := binary.Append(nil, binary.LittleEndian, e)
		if err == nil {
			_, err = journal.Write(line)
		}
		return err
	}
	all := relay.New(q.(*honkerQueue).db, &relay.Options{Observer: &relay.Observer{Finished: func(f relay.Finished) {
		_ = note(haulEntry{finishedEntry, int32(f.Partition), f.Epoch, 0, int64(f.Processed)})
	}}})
	all.Queue("bench", haulPartitions).HandleBatch(func(_ context.Context, b *relay.Batch) error {
		messages := b.NextChunk(b.Len())
		for _, m := range messages {
			if err := inOrder(m); err != nil {
				return err
			}
		}
		first := messages[0]
		if err := note(haulEntry{deliversEntry, int32(first.Partition), first.Epoch, first.Seq, int64(len(messages))}); err != nil {
			return err
		}
		b.AckChunk(len(messages))
		return nil
	}, relay.Lease(haulLease, haulLease/4))
	fmt.Println("READY")
	return all.Run(ctx)
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"
)

// Contestant is an implementation of a queue, in a SQLite file or on a server of its own.
type Contestant struct {
	Name  string
	About string // settings, and the source that recommends them
	Best  int    // number of workers with which it is fastest
	// Poll is the longest polling interval, or 0 if workers are woken. Samples are spread over the
	// interval to avoid sampling in phase with the polls.
	Poll time.Duration
	Open func(ctx context.Context, path string, d Durability) (Queue, error)
}

// Durability says how far a commit must have been written when it returns.
type Durability string

// The measured durabilities: synchronous=NORMAL and synchronous=FULL of SQLite, in WAL mode.
const (
	Normal Durability = "NORMAL"
	Full   Durability = "FULL"
)

// Queue is the part that every contestant implements.
type Queue interface {
	// Enqueue commits a job that passes n to its handler.
	Enqueue(ctx context.Context, n int64) error
	// Work runs jobs in several goroutines until ctx is done.
	Work(ctx context.Context, workers int, handle func(n int64)) error
	// Unfinished returns the number of jobs that are due or running.
	Unfinished(ctx context.Context) (int, error)
	// SQL returns the database for the application's own rows.
	SQL() *sql.DB
	Close() error
}

// Optional parts.
type (
	// Batcher adds n jobs in a single commit.
	Batcher interface {
		EnqueueBatch(ctx context.Context, n int) error
	}
	// TxEnqueuer adds an order and its job in a transaction of the caller.
	TxEnqueuer interface {
		EnqueueTx(ctx context.Context) error
	}
	// TxWorker is Work with a handler that inserts a receipt.
	TxWorker interface {
		WorkTx(ctx context.Context, workers int, handle func(n int64)) error
	}
	// Claimer claims a job and acks it.
	Claimer interface {
		ClaimAck(ctx context.Context) error
	}
	// Filler adds n jobs of a kind, to surround the jobs that are measured.
	Filler interface {
		Fill(ctx context.Context, kind Kind, n int) error
	}
	// Idler works empty queues and listens to silent channels until ctx is done.
	Idler interface {
		Idle(ctx context.Context, queues, listeners int) error
	}
	// Neighbour commits a job to a queue on which no worker of the crowd waits.
	Neighbour interface {
		EnqueueElsewhere(ctx context.Context) error
	}
	// Streamer is a stream of events.
	Streamer interface {
		Publish(ctx context.Context, n int64) error
		PublishBatch(ctx context.Context, n int) error
		// Subscribe handles each event and saves its offset until ctx is done.
		Subscribe(ctx context.Context, consumer string, handle func(n int64)) error
	}
	// Acker is a stream of events whose consumer acks each event in a commit of its own.
	Acker interface {
		SubscribeAcking(ctx context.Context, consumer string, handle func(n int64)) error
	}
	// Keyed is a stream of events with keys.
	Keyed interface {
		// PublishKey publishes an event for subscriber n.
		PublishKey(ctx context.Context, n int) error
		// SubscribeKeys runs subscribers that each filter for their own key, until ctx is done.
		SubscribeKeys(ctx context.Context, subscribers int, handle func(n int)) error
	}
	// Grouper distributes the events of a stream among members.
	Grouper interface {
		Member(ctx context.Context, group, member string, handle func(n int64)) error
	}
)

// Kind is a kind of jobs that surround the measured jobs.
type Kind string

// Kinds of surrounding jobs.
const (
	Due      Kind = "due"
	InFlight Kind = "in flight"
	Delayed  Kind = "delayed"
	Dead     Kind = "dead"
)

// errNA means that a contestant does not support a measurement.
var errNA = errors.New("n/a")

// elsewhere is the queue used by Neighbour.
const elsewhere = "elsewhere"

// idleQueue returns the name of queue i of an Idler. Each process has its own queues.
func idleQueue(i int) string { return fmt.Sprintf("queue-%d-%d", os.Getpid(), i) }

// contestants returns all contestants in table order. The first is the ceiling.
func contestants() []Contestant {
	return installed([]Contestant{raw(), honkers(), riverTuned(), riverDefault(), backlites(), goqiteTuned(), goqiteDefault()})
}

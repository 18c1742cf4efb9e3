package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"
)

// Contestant is one way to have a queue: in a SQLite file, or beside it.
type Contestant struct {
	Name  string
	About string // its settings, and where they are recommended
	Best  int    // the number of workers that suits it best
	// Poll is its longest interval. Samples are spread over it, so that none is taken in
	// step with it; 0: it is woken.
	Poll time.Duration
	Open func(ctx context.Context, path string, d Durability) (Queue, error)
}

// Durability is what a commit waits for.
type Durability string

// The durabilities that are measured: SQLite's synchronous=NORMAL and FULL, in WAL mode.
const (
	Normal Durability = "NORMAL"
	Full   Durability = "FULL"
)

// Queue is what every contestant can do.
type Queue interface {
	// Enqueue adds a job in a commit of its own, and says n to its handler.
	Enqueue(ctx context.Context, n int64) error
	// Work hands jobs to handle in several goroutines until ctx ends.
	Work(ctx context.Context, workers int, handle func(n int64)) error
	// Unfinished counts the jobs that are due or in flight.
	Unfinished(ctx context.Context) (int, error)
	// SQL is where the application writes its own rows.
	SQL() *sql.DB
	Close() error
}

// What a contestant may lack.
type (
	// Batcher adds n jobs in one commit.
	Batcher interface {
		EnqueueBatch(ctx context.Context, n int) error
	}
	// TxEnqueuer adds an order and its job in one transaction of the caller.
	TxEnqueuer interface {
		EnqueueTx(ctx context.Context) error
	}
	// TxWorker is Work with a handler that writes a receipt.
	TxWorker interface {
		WorkTx(ctx context.Context, workers int, handle func(n int64)) error
	}
	// Claimer claims one job and acks it.
	Claimer interface {
		ClaimAck(ctx context.Context) error
	}
	// Filler surrounds the jobs to come with n others of a kind.
	Filler interface {
		Fill(ctx context.Context, kind Kind, n int) error
	}
	// Idler works queues and listens, with nothing to do, until ctx ends.
	Idler interface {
		Idle(ctx context.Context, queues, listeners int) error
	}
	// Neighbour adds a job to a queue that no worker of the crowd has, in a commit of its own.
	Neighbour interface {
		EnqueueElsewhere(ctx context.Context) error
	}
	// Streamer is a stream of events.
	Streamer interface {
		Publish(ctx context.Context, n int64) error
		PublishBatch(ctx context.Context, n int) error
		// Subscribe hands over each event, and saves how far it has come, until ctx ends.
		Subscribe(ctx context.Context, consumer string, handle func(n int64)) error
	}
	// Keyed is a stream of events with keys.
	Keyed interface {
		// PublishKey publishes an event for subscriber n.
		PublishKey(ctx context.Context, n int) error
		// SubscribeKeys hands events to so many subscribers, each of which asks for its own,
		// until ctx ends.
		SubscribeKeys(ctx context.Context, subscribers int, handle func(n int)) error
	}
	// Grouper shares the events of a stream among members.
	Grouper interface {
		Member(ctx context.Context, group, member string, handle func(n int64)) error
	}
)

// Kind of jobs that surround others.
type Kind string

// The kinds of surroundings.
const (
	Due      Kind = "due"
	InFlight Kind = "in flight"
	Delayed  Kind = "delayed"
	Dead     Kind = "dead"
)

// errNA is why a contestant has no number.
var errNA = errors.New("n/a")

// elsewhere is the queue of a Neighbour.
const elsewhere = "elsewhere"

// idleQueue is the name of queue i of an Idler: each process has its own.
func idleQueue(i int) string { return fmt.Sprintf("queue-%d-%d", os.Getpid(), i) }

// contestants in the order of the tables. The first is the ceiling.
func contestants() []Contestant {
	return installed([]Contestant{raw(), honkers(), riverTuned(), riverDefault(), backlites(), goqiteTuned(), goqiteDefault()})
}

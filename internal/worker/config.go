package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Config holds the options of a Pool.
type Config struct {
	WorkerID     string
	Workers      int           // maximum number of concurrent handlers
	Lease        time.Duration // length of a lease; it is renewed after every third of it
	DrainTimeout time.Duration // time from the end of ctx until handlers are cancelled
	Logger       *slog.Logger
	Slots        *Slots // limits the handlers of several pools together; nil if only Workers limits this pool
	Due          bool   // run all due jobs, one after another, in the goroutine of Run, and return

	Handlers []*Handler                                         // in the order of Source.Queues
	OnError  func(ctx context.Context, job *row.Job, err error) // called after a failed attempt or a lost claim
}

// Handler runs the jobs of a queue.
type Handler struct {
	Timeout   time.Duration // time limit of an attempt; 0 if there is none
	ResultTTL time.Duration
	Backoff   func(attempt int, err error) time.Duration

	Handle     func(ctx context.Context, claim *Claim, job *row.Job) error
	OnClaimed  func(*ClaimOp)                         // called after the commit of the claim
	OnStarted  func(*Claim)                           // called before Handle
	OnReturned func(*Claim)                           // called after Handle, once for each OnStarted
	OnSettled  func(end *SettleOp, ran time.Duration) // called after the commit that ended the claim
}

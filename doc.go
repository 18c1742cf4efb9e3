// Package honker turns a SQLite file into durable job queues, event streams, pub/sub, cron
// schedules, locks, rate limits and an outbox that share the caller's transactions. Workers
// wake up on commit, in any process that has the file open, on Linux without polling. There
// is no server and no cgo, and workers in other languages can share the file.
//
// [Open] opens a file, and [Attach] uses a pool that the application already has. A [Queue]
// adds jobs, in the transaction that makes the work necessary:
//
//	db, err := honker.Open(ctx, "app.db", nil)
//	...
//	receipts := honker.NewQueue[Receipt](db, "receipts", nil)
//
//	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders ..."); err != nil {
//			return err
//		}
//		_, err := receipts.EnqueueTx(ctx, tx, Receipt{Order: 17})
//		return err
//	})
//
// The job exists if the transaction commits, and never did if it rolls back. [Queue.Work] calls
// a function for each job, from several goroutines, until ctx ends:
//
//	err = receipts.Work(ctx, func(ctx context.Context, job *honker.Job[Receipt]) error {
//		return send(ctx, job.Args)
//	}, nil)
//
// Most programs need only five methods of a Queue:
//
//   - [Queue.Enqueue] adds a job and returns once it is committed
//   - [Queue.EnqueueTx] adds a job in the caller's transaction
//   - [Queue.Work] runs a handler for each job
//   - [Queue.WorkTx] runs each handler in a transaction that also acks its job
//   - [Queue.Cancel] removes a job and cancels the context of its handler
//
// # Many kinds of jobs
//
// Each kind of job has a [Queue] of its own, with its own type and [QueueOptions]. [Workers]
// runs the jobs of many queues together:
//
//	workers := honker.NewWorkers(db, nil)
//	honker.Handle(workers, mails, sendMail)
//	honker.Handle(workers, reports, buildReport)
//	honker.HandleTx(workers, payments, book)
//	err := workers.Work(ctx, &honker.WorkOptions{Workers: 16})
//
// A worker never claims jobs of a queue for which it has no handler.
//
//   - [Handle] registers a handler like that of [Queue.Work]
//   - [HandleTx] registers a handler like that of [Queue.WorkTx]
//   - [Order] selects the next queue: [ByPriority] across all queues, [InTurns] by weight, or
//     [Strict] by rank
//   - [Pool] limits the handlers of several loops together, even of several files
//
// # Running a service
//
// A service has several loops. [Run] runs them until ctx ends or a loop fails:
//
//	err := honker.Run(ctx,
//		func(ctx context.Context) error { return workers.Work(ctx, nil) },
//		db.Scheduler().Run,
//		func(ctx context.Context) error { return db.Maintain(ctx, nil) },
//	)
//
// When ctx ends, running handlers have time to finish, and Run returns after them. Each of these is
// a loop:
//
//   - [Workers.Work] and [Queue.Work] run jobs
//   - [Scheduler.Run] enqueues the jobs of schedules
//   - [DB.Maintain] removes expired data; every service should run it
//   - [Outbox.Run] delivers the messages of an outbox
//   - [Stream.Consume], [Group.Work] and [Pipe] process events
//
// A program that runs now and then calls [Queue.WorkDue] or [Workers.WorkDue], which run the jobs
// that are due and return. A program with its own loop takes jobs from [Queue.Jobs] or [Queue.Claim]
// and settles them with [Job.Ack], [Job.Retry], [Job.Reject] or [Job.Snooze].
//
// # Results of a handler
//
// The result of a handler settles its job. After nil the job is done. After an error it is retried,
// with growing delays; after 25 attempts, in about half a day, it becomes a dead letter. [QueueOptions]
// can change these defaults. A handler decides otherwise by the error that it returns:
//
//   - [RetryAfter] retries the job after a given time
//   - [Snooze] postpones the job without using up an attempt
//   - [Reject] makes the job a dead letter at once
//   - [SlowDown] pauses the jobs with the same [Key], or the queue of a job without a key, for a
//     server that answers "too many requests"
//
// A handler may run more than once for the same job, for example after a crash. Effects in the file
// happen exactly once if they are made in the transaction of [Queue.WorkTx] or [HandleTx].
//
// # Dead letters
//
// A dead letter stays in the file with its error. Package admin lists, requeues and discards dead
// letters. [Queue.SetRetention] limits their number and age; by default all are kept.
//
// # Options of an enqueue
//
//   - [Delay], [RunAt] and [ExpiresIn] set when a job may start
//   - [Priority] puts a job ahead of others, and [MaxAttempts] limits its attempts
//   - [Unique] and [UniqueArgs] allow at most a single live job per key
//   - [Debounce] waits until a key is quiet, and [Throttle] adds at most a single job per period
//   - [Placed] reports whether the enqueue added a job or found an earlier job
//   - [Key] names the customer, host or account by which [Limits] apply
//   - [Headers] carries metadata, such as a tenant or a trace context
//   - [After], [AfterBatch], [InBatch] and [EvenIfDead] build workflows
//
// [QueueOptions] holds the defaults of all enqueues of a Queue. [Queue.EnqueueMany] adds many jobs in
// a single commit.
//
// # Settings of a queue
//
// [QueueOptions] applies to a handle in one process: attempts, [Backoff], timeout, lease. These
// settings are stored in the file and apply to all processes:
//
//   - [Queue.SetLimits] limits how many jobs run, how many start per period, and the order of jobs
//     with the same [Key]; see [Limits]
//   - [Queue.Pause] and [Queue.Resume] stop and continue a queue; [PauseOptions] can select a key
//   - [Queue.SetRetention] keeps done jobs, and limits the dead letters
//
// # Workflows
//
//   - [After] makes a job wait until other jobs are done
//   - [DB.NewBatch] and [DB.NewBatchTx] create a [Batch] of jobs that are not all known at once
//   - [InBatch] adds a job to a batch, and [Batch.Seal] ends the additions
//   - [AfterBatch] makes a job wait for a batch
//   - [Job.After] lists the jobs whose results the handler can read with [Result]
//   - [Batch.Cancel] removes the jobs of a batch and the jobs that wait for them
//
// # Progress and results
//
//   - [Job.SetResult] saves a result with the ack; [Result] reads it and [WaitResult] waits for it
//   - [Job.SetProgress] shows the progress of a handler to all processes
//   - [Job.Checkpoint] saves the state of a long job for its next attempt; [Job.Checkpointed] reads it
//   - [Job.Logger] keeps the log lines of attempts that fail
//   - [Queue.Get] and [DB.Job] read a job, with its [Phase]; [Queue.Stats] counts the jobs of a queue
//
// # Streams
//
// A [Stream] keeps its events. Each consumer has its own offset, which is stored in the file:
//
//	orders := honker.NewStream[Order](db, "orders", nil)
//	offset, err := orders.Publish(ctx, Order{17}, honker.EventKey("created"))
//
//	for event, err := range orders.Subscribe(ctx, "shipping", nil) {
//		...
//	}
//
// Events stay in the file until the retention of the stream allows their deletion and all consumers
// have read them.
//
//   - [Stream.Publish] and [Stream.PublishTx] add an event
//   - [Stream.Consume] calls a function for each event, and [Stream.Subscribe] is for a loop
//   - [Stream.Read] and [Stream.Tail] read events without a consumer
//   - [Stream.Group] shares the events among the members of a [Group]; [Group.Work] runs handlers
//   - [Pipe] turns a stream into another stream, exactly once for each event
//   - [Stream.Seek] and [Stream.SeekTx] move a consumer, for example to rebuild a projection
//   - [Stream.SetRetention] sets how many events [DB.Maintain] keeps
//
// # Messages, schedules, locks and rates
//
//   - [DB.Notify] sends a message to the current listeners in all processes, and [DB.Listen]
//     receives messages
//   - [DB.Updates] ticks after commits to the file, by any process
//   - [NewOutbox] delivers messages to a destination outside the file
//   - [DB.Scheduler] registers and fires schedules; see [Schedule] and [NextAfter]
//   - [DB.Lock] and [DB.TryLock] acquire a named lock
//   - [DB.RateLimit] counts calls per window; [RateLimit.Wait] waits for the next window
//
// # Observing
//
// [Options].Logger receives failures, panics and dead letters. [Options].Observer receives events
// for metrics and traces; see [observe.Observer]. [Middleware] wraps the handlers, and [Log] is a
// Middleware that logs each attempt. [WithActor] names the person or program behind a change.
//
// # Errors
//
// Errors name the call and the queue, stream or job. Test for their kind with errors.Is:
//
//   - [ErrInvalid] reports a bad name, option or argument, and nothing was changed
//   - [ErrInTx] reports a call that needs its Tx form
//   - [ErrBusy] reports that another transaction has kept the write lock for too long
//   - [ErrNotFound] reports a missing job, result, consumer, group, schedule or batch
//   - [ErrClaimLost] reports that the worker no longer holds the job
//   - [ErrClosed] reports a call after [DB.Close], or interrupted by it
//
// # Packages
//
//   - admin lists, searches, requeues, discards and cancels jobs, says why a job does not run
//     and what is wrong with a file, and makes backups
//   - observe has the events of an Observer, for metrics, traces and tests
//   - ui is a dashboard, an [net/http.Handler] for the application's own server
//   - relay delivers messages in order for each key, such as a customer's webhooks, to HTTP
//     endpoints, brokers or handlers; relay/jetstream and relay/watermill are modules for brokers
//   - inbox receives webhooks and records each once, in one transaction
//   - dispatch sends work to actors by type, group or instance
//   - flow runs functions step by step, which go on after a crash, a deploy or a week of sleep
//   - seal encrypts payloads in the file, as [Options.Codec]
//   - task speaks the envelope of honker's task workers in other languages
//   - honkertest is for tests of code that uses honker: real files, fake time, crashes
//   - honkerprom and honkerotel, modules of their own, have metrics for Prometheus, and traces
//     and metrics of OpenTelemetry
//   - honkerpg, a module of its own, opens the same DB on a PostgreSQL database, for workers on
//     several machines, and honkerpg/move moves an application there
//   - cmd/honker, a module of its own, is the command line: status, jobs, dead letters, a
//     dashboard, and workers that run a command for each job
//
// # Transactions
//
// Every write has two forms. X runs in its own transaction, which concurrent calls share, and XTx
// runs in the caller's. Loops, locks, leases and methods that need several transactions have a single
// form. If a plain X is called with the ctx of [DB.Tx], it would deadlock on the caller's own
// transaction, so it returns [ErrInTx].
//
// ctx comes first, options come last, and nil options mean defaults. Handles such as a
// [Queue] are cheap, and [NewQueue] and its like never fail: the first call returns [ErrInvalid]
// for an invalid name or option. A loop that waits, such as [Queue.Jobs] or
// [Stream.Subscribe], returns without an error when ctx ends.
//
// # Guarantees
//
// Delivery is at least once, and effects are exactly once if they share a transaction with the
// ack. A committed enqueue is never lost, and a rolled-back enqueue is never visible. A single
// worker holds a job's claim. Once its lease has expired, that worker can no longer settle the job
// and gets [ErrClaimLost]. Ids and offsets increase in commit order. docs/guarantees.md lists all
// guarantees with their tests.
//
// With [Normal] durability, the default, a commit survives the death of any process. A power cut may
// lose the last commits, but the file stays consistent. With [Full], no commit is lost.
//
// The file stores whole seconds, as other bindings do. A delay, a retry or an expiry never comes
// early, and may come up to a second late.
//
// # Limitations
//
// The file must be on a local disk of a single machine. SQLite has a single writer at a time, across
// all processes, so transactions must be short: do not wait or use the network inside [DB.Tx]. Never
// open, copy or hash the database file in a process that has it open. On systems that have only POSIX
// locks, closing the file elsewhere in the process drops SQLite's locks. Module honkerpg has none of
// these limitations.
package honker

// Package honker turns a SQLite file into durable job queues, event streams, pub/sub, cron
// schedules, locks, rate limits and an outbox that share the caller's transactions. Workers
// wake up on commit, in any process that has the file open, on Linux without polling. There
// is no server and no cgo, and workers in other languages can share the file.
//
// # Queues
//
// Five methods of a [Queue] make most programs: [Queue.Enqueue], [Queue.EnqueueTx],
// [Queue.Work], [Queue.WorkTx] and [Queue.Cancel]. [Open] a file, enqueue in the transaction
// that makes the work necessary, and work:
//
//	db, err := honker.Open(ctx, "app.db", nil)
//	receipts := honker.NewQueue[Receipt](db, "receipts", nil)
//
//	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := receipts.EnqueueTx(ctx, tx, Receipt{Order: 17})
//		return err
//	})
//
//	err = receipts.Work(ctx, func(ctx context.Context, job *honker.Job[Receipt]) error {
//		return send(ctx, job.Args)
//	}, nil)
//
// The job exists if the transaction commits, and never did if it rolls back. [Queue.Work]
// runs handlers in several goroutines until ctx ends. [Queue.WorkTx] gives each handler a
// transaction that also carries the ack. [Queue.WorkDue] works off what is due and returns.
// [Queue.Jobs] and [Queue.Claim] leave the loop to the caller.
//
// The handler's return value settles the job: nil is done, [Reject] sends it to the dead
// letters, [RetryAfter] and [Snooze] run it later. Any other error is logged and retried, 25
// attempts over about half a day unless [QueueOptions] says otherwise; then the job is dead.
//
//   - Time and order: [Delay], [RunAt], [Priority], [ExpiresIn].
//   - Limits: [Queue.SetLimits] bounds a queue and each [Key] of it, in all processes: how many
//     run, how many start per second, and one key's jobs in order. [SlowDown] obeys a server
//     that answers "too many requests".
//   - Unique jobs: [Unique], [UniqueArgs], [Debounce] and [Throttle].
//   - Workflows: [After] lets a job wait for others, [AfterBatch] for a [Batch] that grows.
//   - Several queues: a [Pool] bounds the handlers of many queues and files, [Lanes] take jobs
//     from queues in turns or strictly by rank.
//   - Operation: [Queue.Pause] and [Queue.Resume], in all processes; [Queue.SetRetention] keeps
//     done jobs and bounds the dead ones; [Queue.Stats] counts.
//   - What a job carries: [Headers]; [Job.SetProgress]; [Job.Checkpoint] for the next attempt;
//     [Job.Logger] and the errors of failed attempts, which package admin shows.
//   - Results: [Job.SetResult] saves one with the ack, [WaitResult] waits for it.
//
// # Streams
//
// A [Stream] keeps its events. Each consumer has its own offset, saved in the file:
//
//	orders := honker.NewStream[Order](db, "orders", nil)
//	offset, err := orders.Publish(ctx, Order{17}, honker.EventKey("created"))
//
//	for event, err := range orders.Subscribe(ctx, "shipping", nil) {
//		…
//	}
//
// [Stream.Consume] runs a function for each event. [Stream.Group] shares the events among
// members. A [Pipe] turns one stream into another in one transaction per batch.
// [Stream.SetRetention] with [DB.Maintain] keeps a stream small.
//
// # Schedules, locks, rates, messages
//
// A [Scheduler] enqueues jobs when they are due. [DB.Lock] and [DB.RateLimit] are shared by
// all processes on the file. [NewOutbox] delivers messages to somewhere outside the file.
// [DB.Notify] and [DB.Listen] pass messages to the current listeners. [DB.Updates] ticks
// after each commit to the file, by any process. [DB.Maintain] removes what has expired; run it
// in every service.
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
//   - seal encrypts payloads in the file, as [Options.Codec]
//   - task speaks the envelope of honker's task workers in other languages
//   - honkertest is for tests of code that uses honker: real files, fake time, crashes
//   - honkerprom and honkerotel, modules of their own, have metrics for Prometheus, and traces
//     and metrics of OpenTelemetry
//   - cmd/honker, a module of its own, is the command line: status, jobs, dead letters, a
//     dashboard, and workers that run a command for each job
//
// # Transactions
//
// Every write has two forms. X runs in a transaction of its own, which concurrent calls share;
// XTx runs in the caller's. Loops, locks, leases and verbs that need several transactions have one
// form. A plain X called with the ctx of [DB.Tx] would deadlock on the caller's own transaction, so
// it returns [ErrInTx].
//
// ctx comes first, options come last, and nil options mean defaults. Handles such as a
// [Queue] are cheap values. NewQueue and its like never fail: an invalid name or option is
// [ErrInvalid] from the first call. A loop that waits, such as [Queue.Jobs] or
// [Stream.Subscribe], returns without an error when ctx ends.
//
// # Guarantees
//
// Delivery is at least once; effects are exactly once when effect and ack share the
// transaction. A committed enqueue is never lost, a rolled-back one never seen. One worker
// holds a claim. Once its lease has expired, that worker can no longer settle the job
// ([ErrClaimLost]). Ids and offsets rise in the order of commits. docs/guarantees.md names the
// tests of each.
//
// With [Normal] durability a commit survives the death of any process, and a power cut may
// take the last commits, never the file's consistency. [Full] keeps every commit.
//
// Columns that are shared with other bindings hold whole seconds: a delay, a retry or an
// expiry never comes early, and up to a second late.
//
// # Limits
//
// One machine: the file must be on a local disk. SQLite has one writer at a time, across all
// processes. honker's own transactions are short, and the caller's should be: no network
// and no waiting inside [DB.Tx]. Never open, copy or hash the database file in a process
// that has it open: where the system has only POSIX locks, closing it drops SQLite's.
package honker

// Package honker turns a SQLite file into durable job queues, event streams, pub/sub, cron
// schedules, locks, rate limits and an outbox that share the caller's transactions. Workers
// wake up on commit, in any process that has the file open, on Linux without polling. There
// is no server and no cgo, and workers in other languages can share the file.
//
// # Queues
//
// [Open] a file, make a [Queue], enqueue inside the transaction that makes the work
// necessary, and work it off:
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
// runs handlers in several goroutines until ctx ends; [Queue.WorkTx] gives each handler a
// transaction that also carries the ack; [Queue.Jobs] and [Queue.Claim] leave the loop to
// the caller. [WaitResult] waits for what a handler has saved with [Job.SetResult], and
// [Queue.Cancel] ends the handler of a job that runs.
//
// A job may have a key to itself: [Unique] and [UniqueArgs] make an enqueue find the job that
// waits or runs, [Debounce] and [Throttle] space them out.
//
// [Queue.Pause] lets no job of a queue start, in any process, until [Queue.Resume].
//
// A job that fails is logged and runs again, 25 attempts over about half a day unless
// [QueueOptions] says otherwise; then it goes to the dead letters.
//
// # Streams
//
// A [Stream] keeps its events. Each consumer has an offset of its own, kept in the file:
//
//	orders := honker.NewStream[Order](db, "orders", nil)
//	offset, err := orders.Publish(ctx, Order{17}, honker.EventKey("created"))
//
//	for event, err := range orders.Subscribe(ctx, "shipping", nil) {
//		…
//	}
//
// [Stream.Consume] runs a function for each event, [Stream.Group] shares the events among
// members, [Pipe] turns one stream into another in one transaction per batch, and
// [Stream.SetRetention] with [DB.Maintain] keeps a stream small.
//
// # Schedules, locks, limits, messages
//
// [Scheduler] enqueues jobs when they are due. [DB.Lock] and [DB.RateLimit] are shared by
// all processes on the file. [NewOutbox] delivers messages to somewhere outside the file.
// [DB.Notify] and [DB.Listen] pass messages to the current listeners; [DB.Updates] ticks
// after each commit to the file, by any process.
//
// # Packages
//
// Package relay delivers messages in order for each key, such as a customer's webhooks, to
// HTTP endpoints, brokers or handlers. Package task speaks the envelope of honker's task
// workers in other languages, and package honkertest is for tests of code that uses honker.
//
// # Verbs
//
// Every write that belongs in a business transaction has two forms. X runs in a transaction
// of its own, which concurrent calls share; XTx runs in the caller's. A plain X called with
// the ctx of [DB.Tx] would wait for its own caller and returns [ErrInTx] instead.
//
// ctx comes first, options come last, and nil options mean defaults. Handles such as a
// [Queue] are cheap values: a bad name or option is [ErrInvalid] from their first verb. A
// loop that waits, such as [Queue.Jobs] or [Stream.Subscribe], ends silently when ctx ends.
//
// # Guarantees
//
// Delivery is at least once; effects are exactly once when effect and ack share the
// transaction. A committed enqueue is never lost, a rolled-back one never seen. A claim is
// held by one worker; after it has lapsed, that worker changes nothing ([ErrClaimLost]). Ids
// and offsets rise in the order of commits. docs/guarantees.md names the tests of each.
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
// processes; honker's own transactions are short, and the caller's should be: no network
// and no waiting inside [DB.Tx]. Never open, copy or hash the database file in a process
// that has it open: where the system has only POSIX locks, closing it drops SQLite's.
package honker

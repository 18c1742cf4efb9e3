// Package honker turns a SQLite file into durable queues, streams, notify/listen,
// schedules, locks, rate limits and an outbox: in the caller's own transaction, woken by
// commits, without a server and without cgo, on the same file as honker workers in any
// other language.
//
// # A queue
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
// Commit and the job exists, roll back and it never did. [Queue.Work] runs handlers in
// several goroutines until ctx ends; [Queue.WorkTx] gives each handler a transaction that
// also carries the ack; [Queue.Jobs] and [Queue.Claim] leave the loop to the caller.
//
// # A stream
//
// A [Stream] keeps its events; each consumer has its own place in it, kept in the file:
//
//	orders := honker.NewStream[Order](db, "orders", nil)
//	offset, err := orders.Publish(ctx, Order{17}, honker.EventKey("created"))
//
//	for event, err := range orders.Subscribe(ctx, "shipping", nil) {
//		…
//	}
//
// [Stream.Group] shares the events among members, [Pipe] turns one stream into another in
// one transaction per batch, [Stream.SetRetention] and [DB.Maintain] keep it small.
//
// # Time, and turns
//
// [Scheduler] enqueues jobs when they are due. [DB.Lock] and [DB.RateLimit] are shared by
// all processes on the file. [NewOutbox] carries messages out of it.
//
// # Verbs
//
// Every write that belongs in a business transaction has two forms. X runs in a
// transaction of its own, which concurrent calls share; XTx runs in the caller's. A plain
// X called with the ctx of [DB.Tx] would wait for its own caller and is [ErrInTx] instead.
//
// [DB.Notify] and [DB.Listen] pass messages to whoever listens now. [WaitResult] waits for
// what a job returns. [DB.Updates] ticks after each commit to the file, by anybody.
//
// # What is promised
//
// Delivery is at least once; effects are exactly once when effect and ack share the
// transaction. A committed enqueue is never lost, a rolled-back one never seen. A claim is
// held by one worker; a worker whose claim has lapsed changes nothing ([ErrClaimLost]). Ids
// and offsets rise in the order of commits. docs/guarantees.md names the test of each.
//
// With [Normal] durability a commit survives the death of any process, and a power cut may
// take the last commits, never the file's consistency. [Full] keeps every commit.
//
// Columns that are shared with other bindings hold whole seconds: spans are rounded up.
//
// # Limits
//
// One machine: the file must lie on a local disk. SQLite has one writer at a time, for all
// processes; honker's own transactions are short, and the caller's should be: no network
// and no waiting inside [DB.Tx]. Never open, copy or hash the database file in a process
// that has it open: where the system has only POSIX locks, closing it drops SQLite's.
package honker

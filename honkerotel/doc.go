// Package honkerotel traces jobs from the call that enqueues them to their handlers, and measures both, by
// OpenTelemetry. It uses the API alone: which SDK there is, and where data goes, is the application's to say.
//
//	tel := honkerotel.New(nil)
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Observer: tel.Observer, Headers: tel.Headers})
//	…
//	err = mails.Work(ctx, send, &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
//
// # Spans
//
// Enqueue and Publish, the forms for many and their Tx forms are spans of the kind PRODUCER, such as "enqueue
// mails", children of the caller's. The context of the span goes along in the headers of the job, as traceparent and
// tracestate. Each run of a handler is a span of the kind CONSUMER, "process mails", with a link to the span that has
// enqueued its job, or as its child with [Options].ParentFromJob. What the handler enqueues is a child of that.
// Events of streams have no headers, so a trace ends where one is published.
//
// Two more are of the kind CLIENT, and off by default: "claim mails" with [Options].Claims, one for each claim that got
// jobs, with links to the spans that have enqueued them, at most 128; and "settle mails" with [Options].Settles, one for
// each job that was acked, retried and so on, linked or parented as its handler's.
//
// Names and attributes are those of the semantic conventions for messaging, of version 1.43.0, which are still in
// development: they may change with a later version of this module. honker.tx says that the enqueue was in the caller's
// transaction, which may have been rolled back. honker.job.attempt and honker.job.priority are the job's. error.type
// is [honker.ErrorType], or "panic"; no span has the text of an error, nor a payload.
//
// A job with headers has a second row in the file.
//
// # Metrics
//
//   - messaging.client.sent.messages: jobs and events that were added
//   - messaging.client.consumed.messages: jobs that were claimed
//   - messaging.client.operation.duration: of enqueues, publishes and claims that got something
//   - messaging.process.duration: of handlers
//   - honker.job.wait: how long jobs could have begun before their handlers did
//
// [Telemetry.Watch] adds what is in the file, of which every process says the same.
package honkerotel

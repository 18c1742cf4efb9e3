// Package honkerotel traces jobs from their enqueue to their handlers and records metrics, using
// OpenTelemetry. It depends only on the API. The application chooses the SDK and the exporters.
//
//	tel := honkerotel.New(nil)
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Observer: tel.Observer, Headers: tel.Headers})
//	…
//	err = mails.Work(ctx, send, &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
//
// # Spans
//
// Enqueue and Publish, with their Many and Tx forms, record a span of kind PRODUCER, such as "enqueue
// mails", as a child of the caller's span. The job carries the span context in its headers traceparent
// and tracestate. Each run of a handler is a span of kind CONSUMER, such as "process mails". It links to
// the span that enqueued the job, or is its child if [Options].ParentFromJob is set. Jobs enqueued by the
// handler are traced as children of the handler's span. Events of streams have no headers, so a trace
// ends with a publish.
//
// Two spans of kind CLIENT are off by default. [Options].Claims adds "claim mails" for each claim that
// returned jobs, with links to the spans that enqueued them, at most 128. [Options].Settles adds "settle
// mails" for each job that was acked, retried and so on, with the same link or parent as its handler.
//
// Names and attributes follow the semantic conventions for messaging, version 1.43.0. These conventions
// are still in development, so names may change in a later version of this module. The attribute honker.tx
// marks an enqueue in the caller's transaction, which may have been rolled back. honker.job.attempt and
// honker.job.priority describe the job. error.type is [honker.ErrorType] or "panic". Spans never contain
// the text of an error or a payload.
//
// A job with headers needs a second row in the database.
//
// # Metrics
//
//   - messaging.client.sent.messages: jobs and events added
//   - messaging.client.consumed.messages: jobs claimed
//   - messaging.client.operation.duration: duration of enqueues, publishes and non-empty claims
//   - messaging.process.duration: duration of handlers
//   - honker.job.wait: time between a job becoming due and the start of its handler
//
// [Telemetry.Watch] adds metrics of the state of the database, which are the same in every process.
package honkerotel

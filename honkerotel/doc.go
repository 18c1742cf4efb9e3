// Package honkerotel uses OpenTelemetry to record metrics and to trace jobs from enqueue to
// handler. It depends only on the OpenTelemetry API. The application chooses the SDK and the
// exporters.
//
//	tel := honkerotel.New(nil)
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Observer: tel.Observer, Headers: tel.Headers})
//	…
//	err = mails.Work(ctx, send, &honker.WorkOptions{Middleware: []honker.Middleware{tel.Middleware}})
//
// # Spans
//
// Enqueue and Publish, including their Many and Tx variants, record a PRODUCER span such as "enqueue
// mails" as a child of the caller's span. The job carries the span context in its traceparent and
// tracestate headers. Each handler call is recorded as a CONSUMER span such as "process mails". This span
// links to the span that enqueued the job, or is its child if [Options].ParentFromJob is set. Spans for
// jobs enqueued by a handler are children of the handler's span. Stream events have no headers, so traces
// do not continue beyond a publish.
//
// The attempts of a run of package flow are children of the span that started the run, so a run is a trace from its
// start to its end, if Work has the Middleware. The trace includes the runs that it calls. Each step that runs records
// an INTERNAL span such as "step charge" or "undo charge" in the span of its attempt. Steps that are recorded already
// record none. Their attributes are honker.flow.name, honker.flow.run and honker.flow.step.
//
// The jobs of package dispatch are traced like other jobs if its actors have the Middleware. The
// messages of package relay carry no headers, so the span of a message that [Telemetry.RelayHandler]
// records begins a trace, and the spans of its handler, such as of an HTTP request, are its children.
//
// Two kinds of CLIENT spans are off by default. [Options].Claims adds a span such as "claim mails" for
// each claim that returned jobs, with links to at most 128 of the spans that enqueued them.
// [Options].Settles adds a span such as "settle mails" for each job that was acked, retried and so on.
// Its link or parent is the same as that of the handler's span.
//
// Names and attributes follow version 1.43.0 of the semantic conventions for messaging. These conventions
// are still in development, so names may change in a later version of this module. The honker.tx attribute
// marks an enqueue in the caller's transaction, which may have been rolled back. The honker.job.attempt
// and honker.job.priority attributes describe the job. The error.type attribute is the result of
// [honker.ErrorType] or "panic". Spans never contain error messages or payloads.
//
// Each job with headers takes up an additional row in the database.
//
// # Metrics
//
//   - messaging.client.sent.messages: jobs and events added
//   - messaging.client.consumed.messages: jobs claimed
//   - messaging.client.operation.duration: duration of enqueues, publishes and non-empty claims
//   - messaging.process.duration: duration of handlers
//   - honker.job.wait: time between a job becoming due and the start of its handler
//   - honker.relay.wait: time between the sending of a relay's message and the start of its batch
//   - honker.flow.step.duration: duration of the steps of flows, by honker.flow.name and honker.flow.undo
//
// [Telemetry.RelayObserver] counts the messages of package relay in the first two.
//
// [Telemetry.Watch] adds metrics for the state of the database. These have the same values in every
// process.
package honkerotel

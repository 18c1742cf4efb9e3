package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// concepts is a help topic that explains the terms of the other pages.
func (a *app) concepts() *cobra.Command {
	return &cobra.Command{
		Use:   "concepts",
		Short: "The terms that the commands use: phases, leases, dead jobs, consumers, retention and others",
		Long: `A database is a file of SQLite or a schema of a PostgreSQL server. Programs in several languages can use it at the same time.

Jobs

A job is a payload in a queue. A queue begins to exist with its first job. A worker claims a job, and holds it by a lease, which
it renews while the handler runs. Each claim is an attempt. A job has one of these phases:

  ready      a worker can claim it now
  scheduled  its time has not come: it has a delay, or waits for a retry after a failed attempt
  held       it waits for other jobs, for a batch, or for a place within the limits of its key
  running    a worker holds it
  lapsed     its lease ended without a result: the worker died or hangs. Another worker claims it again
  expired    its time to start has passed. Maintenance moves it to the dead jobs
  dead       it has failed for good. It stays until it is requeued or discarded
  done       it has succeeded. Done jobs are deleted, unless the queue has a retention for them

Dead jobs with errors of the same kind form a group, which has a fingerprint. The key of a job, such as a customer, is the unit of
limits and of pauses. A unique key prevents a second job with the same key. A batch combines jobs, so that others can wait for all
of them.

Events

A topic is a log of events. Each event has an offset. A consumer reads all events of a topic in order, and saves its offset. The
members of a group share the events, and acknowledge each. The lag is the number of events that a consumer or group has yet to
read. A retention bounds the events that a topic keeps, but an event is kept until all consumers and groups have read it: a
consumer that has stopped pins the events.

Others

A schedule enqueues a job at the times of its spec. A process that runs the scheduler fires it. Maintenance applies retentions and
removes expired jobs. A process that runs it leads; honker maintain does so for a file that no program maintains. A lock has a
single holder in all processes. A relay delivers messages in the order of their partition. An actor is a receiver of messages with a name
that a presence holds.

Problems

A problem is an error if work is not being done or is about to stop, and else a warning. honker status and honker doctor list the
problems with the commands that help. The audit log has the changes that operators have made.`,
	}
}

// topics lists the commands about the same things, which refer to each other in their man pages.
var topics = [][]string{
	{"status", "doctor", "top", "events", "audit", "ui", "metrics", "version"},
	{"queues", "queue", "jobs", "job", "dead", "enqueue", "work", "workers", "batches", "batch", "limits"},
	{"streams", "stream", "consumers", "consumer", "groups", "group", "notify", "listen"},
	{"schedules", "schedule", "flow", "locks", "lock", "relays", "relay", "actors", "actor", "presences", "presence"},
	{"check", "backup", "maintain", "sizes", "vacuum", "schema", "upgrade", "move"},
}

// related returns the other commands of the topic that cmd belongs to, as far as root has them.
func related(cmd *cobra.Command) (all []string) {
	for _, topic := range topics {
		if !slices.Contains(topic, cmd.Name()) {
			continue
		}
		for _, other := range cmd.Root().Commands() {
			if other != cmd && slices.Contains(topic, other.Name()) {
				all = append(all, other.Name())
			}
		}
	}
	return all
}

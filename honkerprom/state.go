package honkerprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
)

// descs holds the descriptions of all of the collector's metrics.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	queueJobs    = desc("honker_queue_jobs", "Number of jobs by phase, counted up to a limit.", "queue", "phase")
	queueCapped  = desc("honker_queue_jobs_capped", "1 if the count of a phase has reached the limit.", "queue")
	queueOldest  = desc("honker_queue_oldest_ready_seconds", "Waiting time of the oldest ready job; 0 if there is none.", "queue")
	queueRunning = desc("honker_queue_oldest_running_seconds", "Running time of the job of the queue that has run longest; 0 if none has run for two seconds.", "queue")
	queueDied    = desc("honker_queue_died_last_hour", "Jobs that died in the last hour and are still dead, counted up to a limit. The file knows them without any counter of a process.", "queue")
	queuePlaces  = desc("honker_queue_cancelled_places", "Number of places in the limits of the queue that cancelled jobs hold until their handlers have returned.", "queue")
	queuePaused  = desc("honker_queue_paused", "1 if the queue is paused.", "queue")
	queueWorkers = desc("honker_queue_workers", "Workers of the queue in all processes, without those known to be gone.", "queue")

	flowRuns   = desc("honker_flow_runs", "Runs of the flow that are not over by state: waiting, running or failed, counted up to a limit.", "flow", "state")
	flowOldest = desc("honker_flow_oldest_suspended_seconds", "Time since the start of the oldest run of the flow that sleeps, waits for a signal or another run, or is to be retried; 0 if there is none.", "flow")

	folded = desc("honker_queues_folded", "Number of queues labeled _other because there are more than Options.MaxQueues.")

	streamHead   = desc("honker_stream_head", "Offset of the last event.", "topic")
	consumerLag  = desc("honker_consumer_lag_events", "Events that the consumer has not read, counted up to a limit.", "topic", "consumer")
	consumerLate = desc("honker_consumer_lag_seconds", "Age of the first event that the consumer has not read; 0 if there is none.", "topic", "consumer")
	consumerCap  = desc("honker_consumer_lag_capped", "1 if the events that the consumer has not read have only been counted up to a limit.", "topic", "consumer")
	groupLag     = desc("honker_group_lag_events", "Events that the group has not delivered, counted up to a limit.", "topic", "group")
	groupLate    = desc("honker_group_lag_seconds", "Age of the first event that the group has not delivered; 0 if there is none.", "topic", "group")
	groupCap     = desc("honker_group_lag_capped", "1 if the events that the group has not delivered have only been counted up to a limit.", "topic", "group")
	groupDead    = desc("honker_group_dead_events", "Events of the group that have used up their attempts.", "topic", "group")
	scheduleNext = desc("honker_schedule_next_fire_timestamp_seconds", "Unix time at which the schedule fires next; in the past if it is overdue. Paused schedules are omitted.", "schedule")
	scheduleLast = desc("honker_schedule_last_fire_timestamp_seconds", "Unix time at which the schedule last fired. Schedules that never fired are omitted.", "schedule")

	relayWaiting = desc("honker_relay_waiting_messages", "Messages of the relay queue that are not finished.", "family", "queue")
	relayOldest  = desc("honker_relay_oldest_seconds", "Age of the oldest message that is not finished; 0 if there is none.", "family", "queue")
	relayDead    = desc("honker_relay_dead_messages", "Dead letters of the relay queue that are neither resolved nor discarded.", "family", "queue")
	relayBlocked = desc("honker_relay_blocked_partitions", "Partitions of the relay queue that wait for a retry after a failure.", "family", "queue")
	relayTries   = desc("honker_relay_attempts", "The most attempts at the first message of a partition of the relay queue.", "family", "queue")
	actorsAlive  = desc("honker_actors", "Actors of package dispatch that are alive.", "type")
	actorJobs    = desc("honker_actor_jobs", "Jobs in all queues of a type of actor by state, counted up to a limit.", "type", "state")
	actorOldest  = desc("honker_actor_oldest_ready_seconds", "Waiting time of the oldest ready job of a type of actor; 0 if there is none.", "type")

	leader    = desc("honker_leader", "1 if a process has the role of firing schedules or maintaining the database.", "role")
	problems  = desc("honker_problems", "Problems of the database by the codes of honker doctor; 0 if there are none.", "code", "severity")
	build     = desc("honker_build_info", "The value is always 1. The label version is the version of honker in this process.", "version", "goversion")
	fileBytes = desc("honker_file_bytes", "Size of the database file.")
	walBytes  = desc("honker_wal_bytes", "Size of the write-ahead log.")
	freeBytes = desc("honker_file_free_bytes", "Size of the unused pages of the database file, which new rows use first.")
	diskFree  = desc("honker_disk_free_bytes", "Free space of the disk with the database file.")

	// Of a database on a server, in place of the file's.
	tableBytes = desc("honker_table_bytes", "Size of a table of honker's with its indexes.", "table")
	tableRows  = desc("honker_table_rows", "Number of rows of a table of honker's, estimated by the server.", "table")
	tableDead  = desc("honker_table_dead_rows", "Number of deleted rows that vacuum has not removed, estimated by the server.", "table")
	used       = desc("honker_server_connections", "Connections of all programs to the server.")
	allowed    = desc("honker_server_connections_max", "Connections that the server allows, without those for superusers.")
)

// newParts returns the parts to read, most important first.
func newParts(o Options) []*part {
	limited := func() *names { return newNames(o.MaxQueues, nil) }
	q := &queues{names: newNames(o.MaxQueues, o.QueueLabel), flows: limited()}
	topics, consumers, groups, schedules, relays, types := limited(), limited(), limited(), limited(), limited(), limited()
	with := func(n *names, look func(context.Context, *honker.DB, *names) ([]prometheus.Metric, error)) look {
		return func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error) { return look(ctx, db, n) }
	}
	return []*part{
		{name: "queues", look: q.look},
		{name: "workers", look: q.workers},
		{name: "flows", look: q.flowMetrics},
		{name: "schedules", look: with(schedules, scheduleMetrics)},
		{name: "consumers", look: with(consumers, consumerMetrics)},
		{name: "groups", look: with(groups, groupMetrics)},
		{name: "streams", look: with(topics, streamMetrics)},
		{name: "relays", look: with(relays, relayMetrics)},
		{name: "actors", look: with(types, actorMetrics)},
		{name: "file", look: fileMetrics},
		{name: "problems", look: q.problems},
	}
}

// look reads the metrics of a part.
type look func(context.Context, *honker.DB) ([]prometheus.Metric, error)

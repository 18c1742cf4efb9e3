package admin

// Help explains the problem and its remedy. It returns "" for an unknown code.
func (c ProblemCode) Help() string { return problemHelp[c] }

var problemHelp = map[ProblemCode]string{
	ProblemFailing: "More than half of the queue's attempts in the last 10 minutes failed, and there were more than 20. Often it is a service that the handlers need, or a deploy. " +
		"Pause the queue until the cause is fixed, so that its jobs do not use up their attempts. Requeue the dead jobs afterwards.",
	ProblemRelayStuck: "A message of a relay queue has failed at least three times, and the messages of its partition wait for it, because they are handled in order. " +
		"Fix the cause, and the partition goes on. Otherwise let the handler reject the message: it becomes a dead letter.",
	ProblemRelayDead: "Messages of a relay queue were rejected or have failed too often in the last hour. Look at their errors, fix the cause, and replay, requeue or discard them.",
	ProblemNoWorker: "Jobs are ready, but the queue has no live worker: no process runs Work on it, and no worker of another binding holds a job. " +
		"Start a worker, or find out why the last one ended. Workers that run now and then, such as with WorkDue, are compared with the average wait of the last day.",
	ProblemWaitsForDead: "Jobs wait for a dead job and will never run. Requeue the dead job, and they run after it. Otherwise discard it, or cancel the jobs that wait.",
	ProblemLapsed: "A worker has not renewed its claims, because it was killed or hangs. The claims expired more than a minute ago, and no other worker has claimed the jobs again. " +
		"Start a worker. The jobs then run again without further action.",
	ProblemLate: "A job has been ready for more than ten times the average wait of its queue in the last day, and for at least a minute. If the average is unknown, the limit is five minutes. " +
		"The queue has workers, but there are too few, their handlers have become slow, or a limit of the queue is too low.",
	ProblemStuck: "A handler has run for more than five minutes, and for more than ten times the average of its queue in the last day. It may wait for something that never comes. " +
		"Look at the job and at its worker. If it is lost, cancel the running job: that ends the context of its handler.",
	ProblemScheduleMissed: "A schedule was due while no process ran Scheduler.Run, and its Missed policy skips such times. Its job did not run. " +
		"Trigger the schedule if the job should run after all. The problem ends with the next job of the schedule.",
	ProblemOverdue: "A schedule should have fired more than a minute ago. Call Scheduler.Run in at least one process. If a process is the leader and does not fire the schedule, " +
		"it hangs: end it, and another process takes over.",
	ProblemBlocked: "A session of the database server has kept other sessions waiting for its locks for more than a second. They use honker's tables. Often it is a transaction that " +
		"the application has left open. End the transaction, or end the session with pg_terminate_backend.",
	ProblemHeld: "Jobs are held for a key although another job of the key may run. Limits never do that; it is a bug in honker. " +
		"The next job of the key to end releases a held job. Please report the bug, with the result of DB.Check.",
	ProblemDisk: "The disk has less than 256 MiB free, or less than 5 GiB and less than 2 %. Nothing can be written to a full disk, not even an ack. " +
		"Free some space, or move the file.",
	ProblemDead: "Jobs have failed for good in the last hour. Look at their errors, fix the cause, and requeue the jobs.",
	ProblemBehind: "A consumer has not read an event that is an hour old, and has not saved its offset for an hour; or a group has no live member. " +
		"Start its program, or delete the consumer if it is no longer used. Consumers of patterns and consumers with a filter are not examined.",
	ProblemSlow: "A consumer reads its events and saves its offset, but its next event is more than an hour old, and its lag in time was no longer ten minutes ago. " +
		"Make its program faster, read with a group of several members, or move the consumer to the end. It is known only for consumers that save their offsets " +
		"with this library, without a pattern or a filter.",
	ProblemPinned: "A topic has more or older events than its retention allows, because a consumer or group has yet to read them. The file grows until they are read. " +
		"Start its program, move it to the end, or delete it if it is no longer used.",
	ProblemWAL: "The write-ahead log is larger than Options.WALLimit. Either a transaction does not end, for example because rows were not closed, and SQLite cannot reuse the log; " +
		"or no process runs DB.Maintain, which truncates the log.",
	ProblemSnapshot: "A transaction, a prepared transaction or a replication slot has had a snapshot for more than ten minutes, and vacuum cannot remove the jobs that were deleted since. " +
		"Claims walk over them and become slower. End the transaction, or drop the slot if it is no longer used.",
	ProblemVacuum: "The table of jobs has more than 100,000 deleted jobs, and autovacuum does not remove them: it is off, or it has not come around for ten minutes. " +
		"Claims walk over them and become slower. Turn autovacuum on, allow it more workers, or vacuum the table by hand.",
	ProblemStandby: "A standby has not replayed changes for more than a minute, or is more than 256 MiB of the log behind. If it is promoted now, these changes are lost, " +
		"unless it is synchronous. If it is not connected, its slot keeps the log until the disk is full: start the standby, or drop the slot with pg_drop_replication_slot.",
	ProblemConnections: "The server uses nine of ten connections that it allows, and refuses programs when all are used. End idle programs, lower pool_max_conns, " +
		"use a pooler, or raise max_connections.",
	ProblemNotices: "This process waits for work, and has had no connection for notices for more than a minute, or they get lost in a pooler. It polls, so jobs of other processes " +
		"start later. Set Options.ListenDSN to a connection string past the pooler. The log of the process has the reason.",
	ProblemRights: "Sessions wait for locks, or deleted jobs cannot be removed, and the role may not see which session is the cause. GRANT pg_read_all_stats to the role, " +
		"or ask an administrator to read pg_stat_activity.",
	ProblemNotMaintained: "No process runs DB.Maintain, so expired jobs are not dead-lettered and retentions are not applied. Call it in at least one process.",
	ProblemPaused:        "A pause without an end is more than a day old and may have been forgotten. Resume it, or give it an end or a new reason.",
	ProblemClock: "The newest job or event was created in the future, as seen by the clock of this machine. Either that clock is behind, or the clock of another machine was ahead. " +
		"Jobs run late and claims expire early. Set the clocks.",
}

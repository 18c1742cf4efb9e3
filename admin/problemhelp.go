package admin

// Help returns an explanation of the problem and its remedy, or "" for an unknown code.
func (c ProblemCode) Help() string { return problemHelp[c] }

var problemHelp = map[ProblemCode]string{
	ProblemNoWorker: "Jobs could run, and no worker of the queue lives: neither a Work of this library, nor one of another binding that holds a job. " +
		"Start one, or look why it ended. A worker that is called now and then, such as one with WorkDue, is late by its own doing: how long jobs have waited in the day before is taken for usual.",
	ProblemWaitsForDead: "Jobs wait for one that is dead, and will for ever. Requeue the dead one, and they run after it; or discard it, or cancel them.",
	ProblemLapsed: "A worker has not renewed its claims: it was killed, or hangs. They ran out more than a minute ago, and no other worker has taken the jobs up. " +
		"Start a worker; the jobs run again by themselves.",
	ProblemLate: "A job has been ready for more than ten times as long as jobs of the queue have waited in the day before, a minute at least, or for five minutes where that is not known. " +
		"There are workers: they are too few, or their handlers have become slow, or a limit of the queue is too low.",
	ProblemOverdue: "A schedule was to fire more than a minute ago. Run Scheduler.Run in at least one process; where one leads and does not fire, it hangs: end it, and another one takes over.",
	ProblemHeld: "Jobs are held for a key though another one of it may run. Limits never do that: it is a fault of honker. " +
		"The next job of the key that ends lets one go. Please report it with the output of honker check.",
	ProblemDisk: "There is less than 2 % of the disk left, and less than 5 GiB, or less than 256 MiB of any. When it is full nothing can be written, acks included. " +
		"Free some, or move the file.",
	ProblemDead: "Jobs have failed for good in the last hour. Look what they died of; when the cause is mended, requeue them.",
	ProblemBehind: "A consumer has not seen an event that is an hour old, and has not saved its offset for as long; or no member of a group lives. " +
		"Start its program, or delete the consumer if there is none any more. Consumers of patterns and those with a filter are not judged.",
	ProblemPinned: "A consumer or group does not read its events, and the retention of the topic would have let them go: the file grows until it reads them. " +
		"Start its program, or delete the consumer if there is none any more.",
	ProblemWAL: "The write-ahead log is larger than Options.WALLimit. A transaction that does not end keeps SQLite from using it again, such as rows that were not closed; " +
		"or no process runs DB.Maintain, which truncates it.",
	ProblemNotMaintained: "No process runs DB.Maintain. What has expired is not dead-lettered, and what is not to be kept is. Run it in at least one process.",
	ProblemPaused:        "A pause without an end is more than a day old. It may have been forgotten: resume it, or give it an end or a new reason.",
	ProblemClock: "The newest job or event was made in the future of this machine. The clock of this machine is behind, or that of another was ahead: " +
		"jobs run late, and claims lapse early. Set the clocks.",
}

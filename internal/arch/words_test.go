package arch_test

import (
	"regexp"
	"slices"
)

// personWords are the words of a comment that speaks of a caller, a worker, a process or a
// connection as if it were a person. The thing has a name.
var personWords = regexp.MustCompile(`(?i)\b(who|whom|whose|somebody|nobody|whoever|anybody|everybody)\b`)

func wordFaults(s source) (faults []string) {
	if slices.Contains(notYetPlain, s.path) {
		return nil
	}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if word := personWords.FindString(c.Text); word != "" {
				faults = append(faults, "says "+word+": "+c.Text)
			}
		}
	}
	return faults
}

// notYetPlain are files that are still to be reworded. A file leaves the list when it is
// clean; none is added.
var notYetPlain = []string{
	"attach_test.go", "bench/contestant.go", "bench/contestant_backlite.go", "bench/contestant_raw.go",
	"bench/machine.go", "bench/main.go", "bench/main_test.go", "bench/micro/live_test.go",
	"bench/micro/stream_test.go", "bench/micro/work_test.go", "bench/rounds.go", "bench/server.go",
	"bench/suite.go", "bench/suite_contention.go", "bench/suite_idle.go", "bench/suite_wake.go",
	"bench/suite_work.go", "bench/summary.go", "errors.go", "errors_test.go", "event.go",
	"example_lock_test.go", "example_scheduler_test.go", "example_stream_test.go", "examples/feed/books.go",
	"examples/feed/consumers.go", "examples/feed/display.go", "examples/feed/feed.go", "examples/feed/main.go",
	"examples/feed/main_test.go", "examples/feed/resolve.go", "examples/feed/tailer.go",
	"examples/orders/books.go", "examples/orders/main_test.go", "examples/orders/receipts.go",
	"examples/orm/main_test.go", "group.go", "honker.go", "internal/cron/property_test.go",
	"internal/engine/loop.go", "internal/sqlite/call.go", "internal/sqlite/committer.go",
	"internal/sqlite/committer_faults_test.go", "internal/sqlite/committer_test.go",
	"internal/sqlite/errors.go", "internal/sqlite/function_test.go", "internal/sqlite/gate_test.go",
	"internal/sqlite/main_test.go", "internal/sqlite/platform_linux.go",
	"internal/sqlite/platform_linux_test.go", "internal/sqlite/pragma.go",
	"internal/sqlite/transaction_test.go", "internal/sqlite/writeback_linux_test.go",
	"internal/testkit/file.go", "internal/testkit/seed.go", "internal/testkit/wait.go",
	"internal/testkit/worker.go", "internal/watch/watch.go", "internal/wake/wake_test.go", "internal/worker/batch.go",
	"internal/worker/drain.go", "internal/worker/lease.go", "internal/worker/pool.go",
	"internal/worker/settle.go", "lock.go", "lock_test.go", "maintain.go", "maintain_test.go", "member.go",
	"notify_test.go", "notify_updates_test.go", "observe_test.go", "open.go", "open_test.go", "outbox.go",
	"pipe.go", "queue.go", "ratelimit.go", "retention.go", "scheduler.go", "scheduler_run_test.go", "stream.go",
	"stream_test.go", "subscribe.go", "tests/compat/clock_test.go", "tests/compat/telling_test.go",
	"tests/faults/disk_test.go", "tests/faults/failpoint_test.go", "tests/faults/file_test.go",
	"tests/faults/sqlfunc_test.go", "tests/faults/worker_test.go", "tests/faultvfs/clock.go",
	"tests/faultvfs/disk.go", "tests/faultvfs/vfs.go", "tests/model/group_test.go",
	"tests/model/linear_linux_test.go", "tests/model/lock_test.go", "tests/model/queue_test.go",
	"tests/model/retention_test.go", "tests/process/clock_test.go", "tests/process/scheduler_test.go",
	"tests/process/storm_test.go", "tests/torture/child.go", "tests/torture/faults.go", "tests/torture/keep.go",
	"tests/torture/leaks.go", "tests/torture/model_group.go", "tests/torture/model_lock.go",
	"tests/torture/model_outbox.go", "tests/torture/model_retention.go", "tests/torture/roles.go",
	"tests/torture/state.go", "tests/torture/wakes.go", "worker.go", "worker_drain_test.go",
	"worker_tx_test.go",
}

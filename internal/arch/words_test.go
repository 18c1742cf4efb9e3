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
	"bench/contestant.go", "bench/contestant_backlite.go", "bench/contestant_raw.go", "bench/machine.go",
	"bench/main.go", "bench/main_test.go", "bench/rounds.go", "bench/server.go", "bench/suite.go",
	"bench/suite_contention.go", "bench/suite_idle.go", "bench/suite_wake.go", "bench/suite_work.go",
	"bench/summary.go", "errors.go", "event.go", "examples/feed/books.go", "examples/feed/consumers.go",
	"examples/feed/display.go", "examples/feed/feed.go", "examples/feed/main.go", "examples/feed/main_test.go",
	"examples/feed/resolve.go", "examples/feed/tailer.go", "examples/orders/books.go",
	"examples/orders/main_test.go", "examples/orders/receipts.go", "group.go", "groupwork.go", "honker.go",
	"internal/engine/loop.go", "internal/sqlite/committer.go", "internal/wake/wake_test.go",
	"internal/worker/batch.go", "internal/worker/drain.go", "internal/worker/lease.go",
	"internal/worker/pool.go", "internal/worker/settle.go", "lock.go", "maintain.go", "member.go", "open.go",
	"outbox.go", "queue.go", "ratelimit.go", "scheduler.go", "stream.go", "subscribe.go",
	"tests/faults/disk_test.go", "worker.go",
}

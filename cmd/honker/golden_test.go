package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// inFile runs f in a bubble, where times are reproducible, with a session on a file that has jobs
// in all phases.
func inFile(t *testing.T, f func(t *testing.T, s *session)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	t.Chdir(filepath.Dir(path))
	synctest.Test(t, func(t *testing.T) {
		fill(t, path)
		f(t, &session{person: person{t: t, env: map[string]string{"HONKER_FILE": "app.db"}}})
	})
}

func open(t *testing.T, path string) *honker.DB {
	t.Helper()
	db, err := honker.Open(t.Context(), path, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return db
}

func fill(t *testing.T, path string) {
	t.Helper()
	ctx := t.Context()
	db := open(t, path)
	defer func() { require.NoError(t, db.Close()) }()
	emails := honker.NewQueue[json.RawMessage](db, "emails", &honker.QueueOptions{Lease: time.Hour})
	enqueue := func(q *honker.Queue[json.RawMessage], args string, opts ...honker.EnqueueOption) int64 {
		id, err := q.Enqueue(ctx, json.RawMessage(args), opts...)
		require.NoError(t, err)
		return id
	}
	for _, reason := range []string{
		`job 1: no such address "ann@example.com"`, `job 2: no such address "bob@example.com"`, "server is down\nconnection refused",
	} {
		enqueue(emails, `{"to": "ann", "order": {"id": 12345678901234567890}}`, honker.MaxAttempts(3))
		_, err := emails.WorkDue(ctx, func(_ context.Context, job *honker.Job[json.RawMessage]) error {
			job.Logger().Info("send", "to", "ann\x1b[2J")
			job.SetProgress(1, 2, "half of it")
			time.Sleep(200 * time.Millisecond)
			return honker.Reject(errors.New(reason))
		}, &honker.WorkOptions{WorkerID: "worker-0"})
		require.NoError(t, err)
		time.Sleep(time.Minute - 200*time.Millisecond)
	}
	reports := honker.NewQueue[json.RawMessage](db, "nightly reports", &honker.QueueOptions{Lease: time.Minute})
	enqueue(reports, `1`)
	_, err := reports.Claim(ctx, "worker-1", 1)
	require.NoError(t, err)
	enqueue(reports, `2`, honker.ExpiresIn(time.Minute))
	time.Sleep(10 * time.Minute)
	enqueue(emails, `{"to": "cleo"}`, honker.Priority(5))
	_, err = emails.Claim(ctx, "worker-2", 1)
	require.NoError(t, err)
	enqueue(emails, `{"to": "dan"}`)
	enqueue(emails, `{"to": "eve"}`, honker.Delay(2*time.Hour), honker.Unique("eve", nil))
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "nightly", Queue: "nightly reports", Spec: "@every 2m"}))
	time.Sleep(4*time.Minute + 30*time.Second)
}

// each runs a command in all formats.
func (s *session) each(args ...string) {
	s.atTerm = true
	s.do(args...)
	s.atTerm = false
	s.do(args...)
	for _, format := range []string{"json", "jsonl", "name"} {
		s.do(append(args, "-o", format)...)
	}
}

func TestGolden_Status(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("status")
		s.do("status", "--fail-on", "none")
		s.do("status", "--fail-on", "warn,error", "-q", "-o", "name")
		require.NoError(t, open(t, "empty.db").Close())
		s.do("status", "-f", "empty.db", "-o", "table")
		s.do("status", "-f", "empty.db", "-o", "json")
		s.do("queue", "pause", "emails", "--reason", "mail server is down", "--until", "1h")
		s.do("queue", "pause", "nightly reports")
		time.Sleep(30 * time.Minute)
		s.do("queues", "-o", "table")
		s.do("queue", "show", "emails", "-o", "json")
		s.do("queue", "show", "emails", "-o", "table")
		s.do("status", "-o", "table")
		s.matches("status")
	})
}

// Each problem is explained, with commands for the file named by -f.
func TestGolden_Doctor(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("doctor")
		require.NoError(t, open(t, "empty.db").Close())
		s.do("doctor", "-f", "empty.db", "-o", "table")
		s.do("doctor", "-f", "empty.db", "-o", "json")
		time.Sleep(2 * time.Hour)
		s.do("doctor", "-f", "app.db", "-o", "table")
		s.matches("doctor")
	})
}

// Problems of the same kind are combined, and the largest are named. A queue that fails comes first.
func TestGolden_Problems(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		db := open(t, "app.db")
		for n := range 8 {
			q := honker.NewQueue[int](db, fmt.Sprintf("tenant-%d", n), nil)
			for range n + 1 {
				_, err := q.Enqueue(t.Context(), n)
				require.NoError(t, err)
			}
		}
		time.Sleep(2 * time.Hour)
		mails := honker.NewQueue[int](db, "mails", &honker.QueueOptions{Backoff: func(int, error) time.Duration { return 2 * time.Second }})
		for n := range 30 {
			_, err := mails.Enqueue(t.Context(), n)
			require.NoError(t, err)
		}
		_, err := mails.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error {
			if job.Args < 2 {
				return nil
			}
			return fmt.Errorf("dial tcp 10.0.3.11:%d: connection refused", 587+job.Args)
		}, &honker.WorkOptions{WorkerID: "worker-2", Workers: 1})
		require.NoError(t, err)
		require.NoError(t, db.Close())
		s.do("status", "-o", "table")
		s.do("doctor", "-o", "table")
		s.do("doctor", "-o", "table", "--all")
		s.do("doctor", "-o", "name", "-q")
		s.do("queue", "why", "mails")
		s.matches("problems")
	})
}

func TestGolden_Workers(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("a process of another boot is not known to be gone here")
	}
	inFile(t, func(t *testing.T, s *session) {
		db := open(t, "app.db")
		seen := time.Now().Add(-90 * time.Second).UnixMilli()
		for id, boot := range map[string]any{"killed": "another", "elsewhere": nil} { // a live worker has a random ID
			_, err := db.SQL().Exec(`INSERT INTO _honkerx_workers (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since_ms, seen_ms)
VALUES (?3, 'emails', 'web1', ?1, 'pid', 4711, 1, 'v1.0.0', 4, ?2, ?2)`, boot, seen, id)
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
		s.each("workers")
		s.each("workers", "emails")
		s.do("workers", "nothing")
		s.matches("workers")
	})
}

// The commands suggested by a problem work.
func TestDoctor_Do(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		time.Sleep(2 * time.Hour)
		found := 0
		var all []struct{ Do []string }
		require.NoError(t, json.Unmarshal([]byte(s.do("doctor", "-o", "json").out), &all))
		for _, p := range all {
			for _, line := range p.Do {
				found++
				words := strings.Fields(strings.ReplaceAll(line, "'nightly reports'", "nightly@reports"))
				for i, word := range words {
					words[i] = strings.ReplaceAll(word, "@", " ")
				}
				got := s.run(words[1:]...)
				require.NotEqual(t, codeUsage, got.code, line+": "+got.err)
			}
		}
		require.Greater(t, found, 5)
	})
}

func TestGolden_Queues(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("queues")
		s.each("queue", "show", "emails")
		s.do("queue", "show", "nothing")
		s.matches("queues")
	})
}

func TestGolden_Jobs(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("jobs")
		s.do("jobs", "--queue", "emails", "--phase", "ready,running")
		s.do("jobs", "--where", "to=eve", "-o", "name")
		for _, order := range []string{"oldest", "died"} {
			s.do("jobs", "--sort", order, "-o", "name")
		}
		s.do("jobs", "--sort", "claim", "--queue", "emails", "-o", "name")
		s.do("__complete", "jobs", "--sort", "")
		s.do("jobs", "--count", "--phase", "dead")
		s.do("jobs", "--queue", "nobody's")
		s.do("jobs", "--queue", "nobody's", "-o", "json")
		for _, format := range []string{"table", "tsv", "json", "jsonl", "name"} {
			s.do("jobs", "--sort", "died", "--limit", "1", "-o", format)
		}
		var page struct{ Next string }
		require.NoError(t, json.Unmarshal([]byte(s.run("jobs", "--sort", "died", "--limit", "1", "-o", "json").out), &page))
		s.do("jobs", "--sort", "died", "--after", page.Next, "-o", "json")
		s.do("jobs", "--why", "--sort", "died", "--limit", "1", "-o", "json")
		s.matches("jobs")
	})
}

func TestGolden_Job(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("job", "show", "1")
		s.do("job", "show", "3", "-o", "table")
		s.do("job", "show", "99")
		s.do("job", "show", "one")
		s.each("job", "logs", "3")
		s.do("job", "logs", "6")
		s.do("job", "logs", "99")
		s.do("job", "run-now", "8")
		s.do("job", "run-now", "8", "-o", "table")
		s.do("job", "cancel", "7", "-o", "json")
		s.do("job", "cancel", "7", "8", "--yes")
		s.do("job", "cancel", "99")
		s.do("job", "bury")
		s.do("job", "bury", "99")
		s.do("job", "bury", "1", "4", "--dry-run")
		s.do("job", "bury", "4", "-o", "table")
		s.matches("job")
	})
}

func TestGolden_Why(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("job", "why", "8")
		for _, id := range []string{"1", "4", "5", "6", "7", "99"} {
			s.do("job", "why", id, "-o", "table")
		}
		s.do("job", "why", "eight")
		s.do("job", "why", "99", "-o", "json")
		s.each("queue", "why", "emails")
		s.do("queue", "pause", "emails", "--reason", "mail server is down", "--until", "1h")
		s.do("queue", "why", "emails", "-o", "table")
		s.do("job", "why", "7", "-f", "app.db", "-o", "table")
		s.do("queue", "why", "nothing", "-o", "table")
		s.each("jobs", "--why", "--phase", "ready,scheduled,lapsed,dead")
		s.matches("why")
	})
}

func TestGolden_Dead(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("dead")
		for _, order := range []string{"newest", "oldest"} {
			s.do("dead", "--sort", order, "--columns", "id,died_at")
		}
		s.each("dead", "groups")
		s.do("dead", "requeue")
		s.do("dead", "requeue", "--all")
		s.do("dead", "requeue", "--all", "--dry-run")
		s.do("dead", "requeue", "--group", "nope")
		s.do("dead", "requeue", "--group", "", "--queue", "nothing", "--dry-run")
		s.do("dead", "requeue", "99")
		s.do("dead", "requeue", "99", "--dry-run", "-q")
		s.do("dead", "discard", "1", "--queue", "others")
		s.do("dead", "requeue", "3", "--to", "again", "--delay", "1h", "-o", "table")
		s.atTerm, s.stdin = true, "n\n"
		s.do("dead", "discard", "--queue", "emails")
		s.stdin = "y\n"
		s.do("dead", "discard", "--queue", "emails")
		s.do("dead", "discard", "--queue", "emails", "--yes")
		s.atTerm = false
		s.do("dead")
		s.matches("dead")
	})
}

func TestGolden_Transfer(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		exported := s.do("dead", "export").out
		s.do("dead", "export", "3", "-q")
		s.do("dead", "export", "--queue", "nothing")
		s.do("dead", "export", "-o", "json")
		s.stdin = exported
		s.do("dead", "import", "-", "--dry-run")
		s.do("dead", "import", "-", "-o", "table")
		s.do("dead", "discard", "--all", "--yes", "-o", "table")
		s.do("dead", "import", "-", "--dry-run", "-o", "json")
		s.do("dead", "import", "-", "--to", "again", "--delay", "1h", "--attempts", "5")
		s.do("jobs", "--queue", "again", "-o", "jsonl")
		s.stdin = exported + "{\"queue\": \"emails\"}\n"
		s.do("dead", "import", "-")
		s.stdin = "no JSON\n"
		s.do("dead", "import", "-")
		s.do("dead", "import", "no.jsonl")
		s.do("dead", "import")
		s.matches("transfer")
	})
}

func TestGolden_Pause(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("queue", "pause", "emails", "--until", "30m", "--reason", "mail server is down", "-o", "table")
		s.do("queue", "pause", "emails", "-o", "table")
		s.do("queue", "pause", "emails")
		s.do("queue", "resume", "emails", "-o", "json")
		s.do("queue", "resume", "emails", "-o", "table")
		s.do("queue", "pause", "emails", "--until", "1999-12-31T00:00:00Z")
		s.do("queue", "pause", "emails", "--until", "soon")
		s.matches("pause")
	})
}

func TestGolden_Enqueue(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("enqueue", "emails", `{"to": "fay"}`)
		s.do("enqueue", "emails", "{to: fay}")
		s.do("enqueue", "emails", "1", "--unique", "eve")
		s.do("enqueue", "emails", "1", "--delay", "-1s")
		s.do("enqueue", "emails", "1", "--max-attempts", "0")
		s.do("enqueue", "emails", "1", "--key", "ann", "-o", "name")
		s.do("jobs", "--key", "ann", "-o", "jsonl")
		s.do("enqueue", "emails", "1", "--header", "trace=17", "--header", "by=us=me", "-o", "name")
		s.do("jobs", "--header", "by=us=me", "-o", "jsonl")
		s.do("enqueue", "emails", "1", "--header", "trace", "-o", "name")
		s.stdin = "1\n\n{\"to\": 2}\n3"
		s.do("enqueue", "emails", "-")
		s.stdin = "1\nx\n"
		s.do("enqueue", "emails", "-")
		s.do("enqueue", "emails", "-", "--unique", "k")
		s.matches("enqueue")
	})
}

func TestGolden_Check(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("check")
		s.matches("check")
	})
}

func TestGolden_Usage(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do()
		s.do("no-such")
		s.do("statsu")
		s.do("dead", "discrad", "1")
		s.do("queue")
		s.do("queue", "stop")
		s.do("status", "extra")
		s.do("status", "--fail-on", "fatal")
		s.do("status", "-o", "xml")
		s.do("status", "--timeout", "0")
		s.do("status", "--timeout", "long")
		s.do("dead", "discard", "1", "-o", "name")
		s.do("jobs", "--where", "order")
		s.do("jobs", "--sort", "best")
		s.do("dead", "--sort", "claim")
		s.do("batches", "--sort", "died")
		s.do("jobs", "--sort", "claim")
		s.do("jobs", "--limit", "-1")
		s.do("jobs", "--phase", "gone")
		s.do("jobs", "--after", "nonsense")
		s.do("jobs", "--created-since", "yesterday")
		s.do("jobs", "--count", "-o", "name")
		s.do("status", "-f", "no.db")
		s.do("status", "-f", ".")
		s.do("ui", "--listen", ":0")
		s.do("ui", "--listen", ":0", "--basic", "ann")
		s.do("ui", "--listen", ":0", "--basic", "ann:secret")
		s.env[accountsVariable] = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="
		s.do("ui", "--listen", ":0")
		delete(s.env, accountsVariable)
		s.do("ui", "-o", "json")
		s.do("ui", "--origin", "ops.example.com")
		s.matches("usage")
	})
}

func TestGolden_Limits(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("queue", "limits", "emails")
		s.do("queue", "limits", "emails", "--running", "10", "--rate", "100/m", "--rate-burst", "20")
		s.do("queue", "limits", "emails", "--per-key", "2", "--key-rate", "5/90s", "-o", "table")
		s.do("queue", "show", "emails", "-o", "table")
		s.do("queue", "limits", "emails", "--rate", "0", "--in-order", "-o", "json")
		s.do("queue", "limits", "emails", "--none", "--running", "3")
		s.do("queue", "limits", "emails", "--rate", "fast")
		s.do("queue", "limits", "emails", "--rate-burst", "5")
		s.do("queue", "limits", "emails", "--running", "-1")
		s.matches("limits")
	})
}

func TestGolden_Keys(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("queue", "keys", "emails", "-o", "table")
		s.do("queue", "limits", "emails", "--per-key", "1", "-q")
		for _, key := range []string{"acme", "acme", "acme", "zeta"} {
			s.run("enqueue", "emails", "1", "--key", key)
		}
		s.do("queue", "pause", "emails", "--key", "zeta", "--reason", "over quota", "-o", "table")
		s.each("queue", "keys", "emails")
		s.do("queue", "resume", "emails", "--key", "zeta")
		s.do("queue", "resume", "emails", "--key", "zeta", "-o", "table")
		s.do("__complete", "queue", "resume", "emails", "--key", "")
		s.matches("keys")
	})
}

func TestGolden_Traffic(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("queue", "traffic", "emails")
		s.do("queue", "traffic", "--step", "1h", "-o", "table")
		s.do("queue", "traffic", "nothing")
		s.do("queue", "traffic", "--step", "90s")
		s.matches("traffic")
	})
}

func TestGolden_Wait(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		db := open(t, "app.db")
		sums := honker.NewQueue[int](db, "sums", nil)
		require.NoError(t, sums.SetRetention(t.Context(), honker.QueueRetention{Done: honker.Retention{MaxCount: 10}}))
		for n := range 2 {
			_, err := sums.Enqueue(t.Context(), n)
			require.NoError(t, err)
		}
		_, err := sums.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error {
			if job.Args == 0 {
				return nil
			}
			return job.SetResult(map[string]int{"sum": 3})
		}, nil)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		s.do("job", "wait", "10")
		s.do("job", "wait", "9")
		s.do("job", "wait", "1")
		s.do("job", "wait", "99")
		s.do("job", "wait", "8", "--for", "2s")
		s.do("job", "wait", "8", "-o", "name")
		for _, verb := range []string{"wait", "why", "logs"} {
			s.do("__complete", "job", verb, "")
		}
		s.matches("wait")
	})
}

func TestGolden_Locks(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("locks", "-o", "table")
		db := open(t, "app.db")
		_, err := db.TryLock(t.Context(), "deploy", &honker.LockOptions{Owner: "ann's laptop"})
		require.NoError(t, err)
		s.each("locks")
		s.do("__complete", "lock", "break", "")
		s.do("lock", "break", "deploy", "--owner", "bob")
		s.do("lock", "break", "deploy")
		s.do("lock", "break", "deploy")
		s.do("lock", "break", "deploy", "-o", "table")
		s.do("lock", "run", "deploy")
		require.NoError(t, db.Close())
		s.matches("locks")
	})
}

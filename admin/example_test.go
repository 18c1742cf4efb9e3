package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// Requeue the jobs that died with the same kind of error while a server was down, spread over an
// hour.
func ExampleRequeue() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.EnqueueMany(ctx, []string{"ada", "bob"}); err != nil {
		log.Fatal(err)
	}
	_, err = mails.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		return honker.Reject(errors.New("server is down"))
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	report, err := admin.Requeue(ctx, db, admin.JobFilter{Queues: []string{"mails"}, Error: "server is down"},
		&admin.RequeueOptions{Spread: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Matched, report.Changed)
	// Output: 2 2
}

// A report's counts, lists and explanation all describe the same moment.
func ExampleQueueReport() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.EnqueueMany(ctx, []string{"ada", "bob"}); err != nil {
		log.Fatal(err)
	}
	if _, err := mails.Claim(ctx, "worker-1", 1); err != nil {
		log.Fatal(err)
	}

	report, err := admin.QueueReport(ctx, db, "mails", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Ready, "ready, next is job", report.Next[0].ID)
	fmt.Println(report.QueueStats.Running, "running, by", report.Running[0].WorkerID)
	// Output:
	// 1 ready, next is job 2
	// 1 running, by worker-1
}

// Each change by an operator is recorded with its actor, verb and filter.
func ExampleAudit() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.EnqueueMany(ctx, []string{"ada", "bob"}); err != nil {
		log.Fatal(err)
	}

	ann := honker.WithActor(ctx, "ann")
	if _, err := mails.Pause(ann, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := admin.Cancel(ann, db, admin.JobFilter{Queues: []string{"mails"}}, nil); err != nil {
		log.Fatal(err)
	}
	entries, err := admin.Audit(ctx, db, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.Actor, e.Verb, string(e.Filter), e.N)
	}
	// Output:
	// ann cancel {"Queues":["mails"]} 2
	// ann pause {"queue":"mails"} 1
}

// Move dead jobs from one file to another.
func ExampleExportJobs() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	here, there := openIn(ctx, dir, "here.db"), openIn(ctx, dir, "there.db")
	defer here.Close()
	defer there.Close()
	mails := honker.NewQueue[string](here, "mails", nil)
	if _, err := mails.Enqueue(ctx, "ada"); err != nil {
		log.Fatal(err)
	}
	_, err = mails.WorkDue(ctx, func(context.Context, *honker.Job[string]) error {
		return honker.Reject(errors.New("server is down"))
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	dead := admin.JobFilter{Phases: []honker.Phase{honker.PhaseDead}}
	var lines bytes.Buffer // or a file
	if _, err := admin.ExportJobs(ctx, here, dead, &lines); err != nil {
		log.Fatal(err)
	}
	if _, err := admin.Discard(ctx, here, dead, nil); err != nil {
		log.Fatal(err)
	}
	report, err := admin.ImportJobs(ctx, there, &lines, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("imported", report.Changed)
	_, err = honker.NewQueue[string](there, "mails", nil).WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		fmt.Println("sent to", job.Args)
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// imported 1
	// sent to ada
}

func openIn(ctx context.Context, dir, name string) *honker.DB {
	db, err := honker.Open(ctx, filepath.Join(dir, name), &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	return db
}

// List the jobs in a queue that have failed at least once, in two pages.
func ExampleListJobs() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.EnqueueMany(ctx, []string{"ada", "bob", "cleo"}); err != nil {
		log.Fatal(err)
	}
	_, err = mails.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		if job.Args == "bob" {
			return nil
		}
		return honker.RetryAfter(time.Hour, errors.New("server is down"))
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	failed := admin.JobFilter{Queues: []string{"mails"}, MinAttempts: 1}
	page := &admin.JobPage{}
	for more := true; more; more = page.Next != "" {
		page, err = admin.ListJobs(ctx, db, failed, &admin.PageOptions{Limit: 1, After: page.Next})
		if err != nil {
			log.Fatal(err)
		}
		for _, job := range page.Jobs {
			fmt.Println(string(job.Payload), job.Phase, job.LastError)
		}
	}
	// Output:
	// "cleo" scheduled server is down
	// "ada" scheduled server is down
}

// List a file's problems and the suggested actions. In this file, a job has died.
func ExampleProblems() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if _, err := mails.Enqueue(ctx, "ada"); err != nil {
		log.Fatal(err)
	}
	_, err = mails.WorkDue(ctx, func(_ context.Context, job *honker.Job[string]) error {
		return honker.Reject(errors.New("no such address"))
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	found, err := admin.Problems(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range found {
		fmt.Println(p.Severity, p.Code, p.Text)
		fmt.Println(p.Do)
	}
	// Output:
	// warn dead mails: 1 job died in the last hour
	// [group the jobs of queue "mails" that died in the last 1h]
}

// A job waits because its customer already has a running job.
func ExampleExplain() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	mails := honker.NewQueue[string](db, "mails", nil)
	if err := mails.SetLimits(ctx, honker.Limits{PerKey: 1}); err != nil {
		log.Fatal(err)
	}
	ids, err := mails.EnqueueMany(ctx, []string{"ada", "bob"}, honker.Key("acme"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := mails.Claim(ctx, "worker-1", 1); err != nil {
		log.Fatal(err)
	}

	why, err := admin.Explain(ctx, db, ids[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(why.Reasons[0].Code, why.Text)
	// Output: key_limit its key "acme" is full: 1 of 1 running, job 1
}

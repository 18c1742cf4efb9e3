// Service is a complete web service on a single SQLite file: it signs users up, sends welcome mails, and sends each
// user a digest every night. See README.md.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerprom"
	"github.com/honker-go/honker/ui"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Mail is a job: a mail to send.
type Mail struct{ To, Subject, Text string }

// Digest is a job: a user's digest for a day.
type Digest struct{ User, Day string }

type service struct {
	db       *honker.DB
	provider string // URL of the mail provider
	mails    *honker.Queue[Mail]
	nightly  *honker.Queue[struct{}] // enqueues the digests
	digests  *honker.Queue[Digest]
}

func main() {
	addr := flag.String("addr", "localhost:8080", "serve HTTP on this `address`")
	file := flag.String("db", "service.db", "keep users and jobs in this `file`")
	provider := flag.String("provider", "", "post mails to this `URL` (default: only log them)")
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil))) // also used by honker

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	if err := run(ctx, *addr, *file, *provider); err != nil {
		slog.Error("service failed", "error", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then finishes open requests and running jobs. Other jobs remain in the file.
func run(ctx context.Context, addr, file, provider string) error {
	metrics := prometheus.NewRegistry()
	db, err := honker.Open(ctx, file, &honker.Options{Observer: honkerprom.Observer(metrics, nil)})
	if err != nil {
		return err
	}
	defer db.Close()
	metrics.MustRegister(honkerprom.New(db, nil))
	s, err := newService(ctx, db, provider)
	if err != nil {
		return err
	}
	workers := honker.NewWorkers(db, nil)
	honker.Handle(workers, s.mails, s.send)
	honker.HandleTx(workers, s.nightly, s.enqueueDigests)
	honker.HandleTx(workers, s.digests, s.writeDigest)

	dashboard := ui.New(db, &ui.Options{Authorize: ui.Basic("admin", os.Getenv("ADMIN_PASSWORD"))})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /signup", s.signup)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("/admin/", dashboard)
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(dashboard.Close) // open pages would delay Shutdown

	return honker.Run(ctx,
		func(ctx context.Context) error { return serve(ctx, server) },
		func(ctx context.Context) error { return workers.Work(ctx, nil) },
		func(ctx context.Context) error { return db.Maintain(ctx, nil) },
		db.Scheduler().Run,
	)
}

func newService(ctx context.Context, db *honker.DB, provider string) (*service, error) {
	urgent := []honker.EnqueueOption{honker.Priority(10)}
	// Each user gets a digest a day, even if an operator triggers the schedule again.
	onceADay := []honker.EnqueueOption{honker.UniqueArgs(&honker.Uniqueness{For: 24 * time.Hour})}
	s := &service{
		db:       db,
		provider: provider,
		mails:    honker.NewQueue[Mail](db, "mails", &honker.QueueOptions{Timeout: 30 * time.Second, Enqueue: urgent}),
		nightly:  honker.NewQueue[struct{}](db, "nightly", nil),
		digests:  honker.NewQueue[Digest](db, "digests", &honker.QueueOptions{Enqueue: onceADay}),
	}
	if _, err := db.SQL().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS users (email TEXT PRIMARY KEY)`); err != nil {
		return nil, err
	}
	return s, db.Scheduler().Register(ctx, honker.Schedule{Name: "nightly", Queue: "nightly", Spec: "0 3 * * *"})
}

// serve serves HTTP until ctx ends, and then gives open requests ten seconds to finish.
func serve(ctx context.Context, server *http.Server) error {
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	})
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// signup commits a user together with the job that sends the welcome mail.
func (s *service) signup(w http.ResponseWriter, r *http.Request) {
	email := r.FormValue("email")
	err := s.db.Tx(r.Context(), func(ctx context.Context, tx *sql.Tx) error {
		const insert = `INSERT INTO users (email) VALUES (?) ON CONFLICT DO NOTHING RETURNING email`
		if err := tx.QueryRowContext(ctx, insert, email).Scan(&email); err != nil {
			return err
		}
		_, err := s.mails.EnqueueTx(ctx, tx, Mail{To: email, Subject: "Welcome"})
		return err
	})
	switch {
	case errors.Is(err, sql.ErrNoRows): // the insert has no effect
		http.Error(w, "this user exists", http.StatusConflict)
	case err != nil:
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// send posts a mail to the provider. An error makes the job run again, with backoff.
func (s *service) send(ctx context.Context, job *honker.Job[Mail]) error {
	slog.InfoContext(ctx, "mail", "to", job.Args.To, "subject", job.Args.Subject)
	if s.provider == "" {
		return nil
	}
	form := url.Values{"to": {job.Args.To}, "subject": {job.Args.Subject}, "text": {job.Args.Text}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.provider, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Idempotency-Key", fmt.Sprint(job.ID)) // a job that is interrupted before its ack runs again
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch err := errors.New(resp.Status); resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnprocessableEntity:
		return honker.Reject(err) // no such address: a retry cannot help
	default:
		return err
	}
}

// enqueueDigests commits a digest for each user together with the ack of the nightly job.
func (s *service) enqueueDigests(ctx context.Context, tx *sql.Tx, job *honker.Job[struct{}]) error {
	rows, err := tx.QueryContext(ctx, `SELECT email FROM users`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var digests []Digest
	for rows.Next() {
		d := Digest{Day: job.RunAt.Format(time.DateOnly)}
		if err := rows.Scan(&d.User); err != nil {
			return err
		}
		digests = append(digests, d)
	}
	_, err = s.digests.EnqueueManyTx(ctx, tx, digests)
	return errors.Join(err, rows.Err()) // an error rolls back
}

// writeDigest commits the mail with a digest together with the ack of the digest.
func (s *service) writeDigest(ctx context.Context, tx *sql.Tx, job *honker.Job[Digest]) error {
	mail := Mail{To: job.Args.User, Subject: "Digest of " + job.Args.Day}
	if err := tx.QueryRowContext(ctx, `SELECT count(*) || ' users' FROM users`).Scan(&mail.Text); err != nil {
		return err
	}
	_, err := s.mails.EnqueueTx(ctx, tx, mail, honker.Priority(0)) // welcome mails come first
	return err
}

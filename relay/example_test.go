package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// Orders and their messages are committed together, and each customer's messages are handled in
// commit order.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	dir, _ := os.MkdirTemp("", "relay")
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.SQL().ExecContext(ctx, `CREATE TABLE orders (customer TEXT, item TEXT)`); err != nil {
		log.Fatal(err)
	}

	r := relay.New(db, nil)
	hooks := r.Queue("webhooks", 16)
	done := make(chan struct{}, 3)
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		done <- struct{}{}
		if string(m.Payload) == "ada: nothing" {
			return relay.Reject(errors.New("there is no such item"))
		}
		fmt.Printf("%d: %s\n", m.Seq, m.Payload)
		return nil
	})
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()

	for _, item := range []string{"tea", "nothing", "milk"} {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('ada', ?)`, item); err != nil {
				return err
			}
			_, err := hooks.SendTx(ctx, tx, relay.Outgoing{Key: "ada", Type: "text/plain", Payload: []byte("ada: " + item)})
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		<-done
	}
	stop()
	fmt.Println("relay:", <-ended)
	// Output:
	// 1: ada: tea
	// 3: ada: milk
	// relay: <nil>
}

// If the warehouse cannot take an order now, the order is retried and later orders wait for it. If
// it can never take the order, the order becomes a dead letter and the next order is handled.
func ExampleQueue_Handle() {
	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	r := relay.New(db, untilFinished(3, stop))
	orders := r.Queue("orders", 1)
	orders.Handle(func(ctx context.Context, m *relay.Message) error {
		fmt.Printf("%s, attempt %d\n", m.Payload, m.Attempt)
		switch {
		case string(m.Payload) == "tea" && m.Attempt == 0:
			return errors.New("the warehouse is closed")
		case string(m.Payload) == "nothing":
			return relay.Reject(errors.New("there is no such item"))
		}
		return nil
	}, relay.Lease(time.Minute, 5*time.Second), relay.MaxAttempts(20))
	for _, item := range []string{"tea", "nothing", "milk"} {
		_, _ = orders.Send(ctx, relay.Outgoing{Key: "ada", Type: "text/plain", Payload: []byte(item)})
	}
	fmt.Println(r.Run(ctx))
	// Output:
	// tea, attempt 0
	// tea, attempt 1
	// nothing, attempt 0
	// milk, attempt 0
	// <nil>
}

// Writes through tx commit together with the progress. Each payment is recorded once, even if the
// handler fails after recording it or the process dies.
func ExampleQueue_HandleTx() {
	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	if _, err := db.SQL().ExecContext(ctx, `CREATE TABLE ledger (payment TEXT, cents INTEGER)`); err != nil {
		log.Fatal(err)
	}
	r := relay.New(db, untilFinished(3, stop))
	payments := r.Queue("payments", 1)
	payments.HandleTx(func(ctx context.Context, tx *sql.Tx, m *relay.Message) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO ledger VALUES ($1, CAST($2 AS INTEGER))`, m.IdempotencyKey(), m.Payload)
		if err == nil && m.Seq == 2 && m.Attempt == 0 {
			return errors.New("after the booking, which is undone")
		}
		return err
	})
	for _, cents := range []string{"100", "20", "3"} {
		_, _ = payments.Send(ctx, relay.Outgoing{Payload: []byte(cents)})
	}
	fmt.Println(r.Run(ctx))
	var n, cents int
	_ = db.SQL().QueryRow(`SELECT count(*), sum(cents) FROM ledger`).Scan(&n, &cents)
	fmt.Println(n, "payments,", cents, "cents")
	// Output:
	// <nil>
	// 3 payments, 123 cents
}

// Info shows each partition's progress and the error after which it's waiting to retry.
func ExampleQueue_Info() {
	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r := relay.New(db, &relay.Options{Observer: &relay.Observer{Retried: func(relay.Retried) { stop() }}})
	hooks := r.Queue("webhooks", 2)
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		if m.Seq == 2 {
			return relay.RetryAfter(time.Hour, errors.New("503 Service Unavailable"))
		}
		return nil
	})
	for range 3 {
		_, _ = hooks.Send(ctx, relay.Outgoing{Partition: 1, Payload: []byte("{}")})
	}
	fmt.Println(r.Run(ctx))

	info, err := hooks.Info(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range info.Partitions {
		fmt.Printf("partition %d: %d of %d done, %d wait\n", p.Partition, p.Processed, p.Seq, p.Waiting)
		if p.LastError != "" {
			fmt.Printf("attempt %d: %s; again in %v\n", p.Attempt, p.LastError, time.Until(p.RetryAt).Round(time.Hour))
		}
	}
	// Output:
	// <nil>
	// partition 0: 0 of 0 done, 0 wait
	// partition 1: 1 of 3 done, 2 wait
	// attempt 1: 503 Service Unavailable; again in 1h0m0s
}

// An observer counts sent, handled and dead messages for metrics.
func ExampleObserver() {
	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	var sent, processed, dead atomic.Int64
	r := relay.New(db, &relay.Options{Observer: &relay.Observer{
		Sent: func(s relay.Sent) { sent.Add(int64(len(s.IDs))) },
		Dead: func(d relay.Died) { dead.Add(1) },
		Finished: func(f relay.Finished) {
			if processed.Add(int64(f.Processed)) == 4 {
				stop()
			}
		},
	}})
	hooks := r.Queue("webhooks", 1)
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		if m.Seq == 3 {
			return relay.Reject(errors.New("no such customer"))
		}
		return nil
	})
	_, _ = hooks.Send(ctx, make([]relay.Outgoing, 4)...)
	fmt.Println(r.Run(ctx))
	fmt.Println(sent.Load(), "sent,", processed.Load(), "processed, of which dead:", dead.Load())
	// Output:
	// <nil>
	// 4 sent, 4 processed, of which dead: 1
}

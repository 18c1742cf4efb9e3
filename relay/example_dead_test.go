package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// An operator lists dead letters with their errors, replays them under a hold, settles or returns
// each of them, and requeues those that can succeed now.
func ExampleQueue_Replay() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, _ := os.MkdirTemp("", "relay")
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	// The customer's endpoint accepts orders only.
	r := relay.New(db, nil)
	hooks := r.Queue("webhooks", 4)
	done := make(chan struct{})
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		if string(m.Payload) == "order" {
			close(done)
			return nil
		}
		return relay.Reject(errors.New("400 Bad Request"))
	})
	for _, payload := range []string{"refund", "invoice", "order"} {
		if _, err := hooks.Send(ctx, relay.Outgoing{Key: "ada", Payload: []byte(payload)}); err != nil {
			log.Fatal(err)
		}
	}
	ran := make(chan error)
	go func() { ran <- r.Run(ctx) }()
	<-done
	stop()
	<-ran

	ctx = context.Background()
	for d, err := range hooks.Dead(ctx, nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s: %s\n", d.IdempotencyKey(), d.Payload, d.LastError)
	}
	dead, err := hooks.Replay(ctx, 10, time.Minute, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range dead {
		if string(d.Payload) == "refund" { // paid out by hand
			err = d.Resolve(ctx)
		} else {
			err = d.Reject(ctx, errors.New("no such customer"))
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	for d := range hooks.Dead(ctx, &relay.DeadFilter{State: relay.DeadPending}) {
		n, err := hooks.Requeue(ctx, d.ID) // the customer exists by now
		fmt.Printf("%s failed %d times, last with %q; requeued: %d %v\n", d.Payload, d.Attempt, d.LastError, n, err)
	}
	deleted, _ := hooks.CleanupDead(ctx, 0)
	info, _ := hooks.Info(ctx)
	ada := info.Partitions[hooks.Partition("ada")]
	fmt.Printf("deleted: %d, dead: %d, waiting: %d of %d\n", deleted, info.Dead, ada.Waiting, ada.Seq)
	// Output:
	// webhooks/3/1: refund: 400 Bad Request
	// webhooks/3/2: invoice: 400 Bad Request
	// invoice failed 2 times, last with "no such customer"; requeued: 1 <nil>
	// deleted: 1, dead: 0, waiting: 1 of 4
}

package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// Orders and their messages commit together, and the messages of each customer are handled in
// that order.
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

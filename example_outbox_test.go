package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/honker-go/honker"
)

func ExampleOutbox() {
	type Webhook struct{ URL, Event string }
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	hooks := honker.NewOutbox(db, "webhooks", func(ctx context.Context, w Webhook) error {
		fmt.Println("POST", w.URL, w.Event) // an error would have it tried again
		stop()
		return nil
	}, nil)

	for _, paid := range []bool{false, true} {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := hooks.SendTx(ctx, tx, Webhook{"https://example.com/hook", fmt.Sprint("paid: ", paid)}); err != nil {
				return err
			}
			if !paid {
				return errors.New("no money") // and no webhook
			}
			return nil
		})
		fmt.Println("order:", err)
	}
	fmt.Println("drained:", hooks.Run(ctx, nil))
	// Output:
	// order: no money
	// order: <nil>
	// POST https://example.com/hook paid: true
	// drained: <nil>
}

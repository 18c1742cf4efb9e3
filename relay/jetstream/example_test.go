package jetstream_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/relay/jetstream"
)

// The relay publishes the orders of each customer in commit order. The stream allows atomic
// batches, so a chunk of messages takes two round trips.
func ExamplePublishBatch() {
	ctx := context.Background()
	conn, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	js, err := natsjs.New(conn)
	if err != nil {
		log.Fatal(err)
	}
	_, err = js.CreateOrUpdateStream(ctx, natsjs.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowAtomicPublish: true})
	if err != nil {
		log.Fatal(err)
	}

	db, err := honker.Open(ctx, "app.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	r := relay.New(db, nil)
	r.Queue("orders", 16).HandleBatch(jetstream.PublishBatch(js, "", &jetstream.Options{
		Subject: func(m *relay.Message) string { return fmt.Sprintf("orders.%d", m.Partition) },
	}))
	log.Fatal(r.Run(ctx))
}

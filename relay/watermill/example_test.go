package watermill_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/relay/watermill"
)

// The relay publishes orders with a Watermill publisher, here the in-process GoChannel.
func ExamplePublish() {
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	db, err := honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	defer pubsub.Close()
	published, err := pubsub.Subscribe(context.Background(), "orders")
	if err != nil {
		log.Fatal(err)
	}

	r := relay.New(db, nil)
	orders := r.Queue("orders", 1)
	orders.Handle(watermill.Publish(pubsub, "orders", nil))
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	if _, err := orders.Send(ctx, relay.Outgoing{Key: "acme", Payload: []byte(`{"total":19}`)}); err != nil {
		log.Fatal(err)
	}

	m := <-published
	fmt.Println(string(m.Payload), m.Metadata[watermill.KeyIdempotencyKey])
	m.Ack()
	stop()
	fmt.Println(<-ended)
	// Output:
	// {"total":19} orders/0/1
	// <nil>
}

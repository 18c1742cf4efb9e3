package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/honker-go/honker"
)

// A group's members share a stream's events. An event that fails does not delay the others: it is delivered
// again when there are no new events.
func ExampleGroup() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	orders := honker.NewStream[string](db, "orders", nil)
	orders.PublishMany(ctx, []string{"tea", "cups", "spoons"})

	packers := orders.Group("packers", &honker.GroupOptions{MaxAttempts: 3})
	ada, err := packers.Join(ctx, "ada")
	if err != nil {
		log.Fatal(err)
	}
	for order, err := range ada.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if order.Data == "tea" && order.Attempts == 1 {
			order.Nack(ctx, errors.New("no box"))
			continue
		}
		fmt.Println(order.Data, "attempt", order.Attempts)
		order.Ack(ctx)
		if order.Attempts == 2 {
			break
		}
	}
	info, err := packers.Info(ctx)
	fmt.Println(info.Members, "lag", info.Lag, "leased", info.Leased, "up to", info.LowWater, err)
	// Output:
	// cups attempt 1
	// spoons attempt 1
	// tea attempt 2
	// [ada] lag 0 leased 0 up to 3 <nil>
}

// openScratch opens a scratch file for an example that is about something else.
func openScratch(ctx context.Context) (db *honker.DB, done func()) {
	path, remove := scratch()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	return db, func() { db.Close(); remove() }
}

// A consumer reads the existing events and then each new event. Its offset is stored in the file.
func ExampleStream_Subscribe() {
	type Order struct{ Item string }
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	orders := honker.NewStream[Order](db, "orders", nil)
	orders.Publish(ctx, Order{"tea"}, honker.EventKey("created"))
	orders.Publish(ctx, Order{"cups"}, honker.EventKey("created"))

	for event, err := range orders.Subscribe(ctx, "shipping", nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Offset, event.Key, event.Data.Item)
		if event.Data.Item == "cups" {
			break // a service would wait for the next event until ctx ends
		}
	}
	offset, err := orders.Offset(ctx, "shipping")
	fmt.Println("handled up to", offset, err)
	// Output:
	// 1 created tea
	// 2 created cups
	// handled up to 2 <nil>
}

// Each consumer has its own offset. A filter excludes events that the consumer doesn't need.
func ExampleStream_Consumers() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	orders := honker.NewStream[int](db, "orders", nil)
	orders.Publish(ctx, 17, honker.EventKey("created"))
	orders.Publish(ctx, 17, honker.EventKey("paid"))
	orders.Publish(ctx, 18, honker.EventKey("created"))
	orders.Publish(ctx, 17, honker.EventKey("shipped"))

	for event := range orders.Subscribe(ctx, "shipping", nil) {
		fmt.Println("shipping:", event.Key, event.Data)
		break
	}
	for event := range orders.Subscribe(ctx, "books", &honker.SubscribeOptions{Filter: honker.KeyIs("paid")}) {
		fmt.Println("books:", event.Key, event.Data)
		break
	}
	consumers, _ := orders.Consumers(ctx)
	for _, c := range consumers {
		fmt.Printf("%s: up to %d, %d to see\n", c.Name, c.Offset, c.Lag)
	}
	// Output:
	// shipping: created 17
	// books: paid 17
	// books: up to 2, 0 to see
	// shipping: up to 1, 3 to see
}

// A tail has no name, starts at the end, and saves no offset. A pattern follows several topics in commit
// order.
func ExampleStream_Tail() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	db, done := openScratch(ctx)
	defer done()

	created := honker.NewStream[int](db, "orders:created", nil)
	paid := honker.NewStream[int](db, "orders:paid", nil)
	created.Publish(ctx, 16)
	head, _ := created.Head(ctx)
	created.Publish(ctx, 17)
	paid.Publish(ctx, 17)

	orders := honker.NewStream[int](db, "orders:*", nil)
	for event, err := range orders.Tail(ctx, honker.Offset(head), nil) {
		fmt.Println(event.Topic, event.Data, err)
		if event.Topic == "orders:paid" {
			break
		}
	}
	// Output:
	// orders:created 17 <nil>
	// orders:paid 17 <nil>
}

// Messages wait for an actor that is not running. The actor's lag is the size of its mailbox.
func ExampleStream_mailbox() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	mailbox := honker.NewStream[string](db, "actor:ada", nil)
	mailbox.SaveOffset(ctx, "ada", 0) // from now on, Compact keeps all events that ada has not seen
	mailbox.PublishMany(ctx, []string{"compute", "print"})

	info, _ := mailbox.Consumers(ctx)
	fmt.Println("waiting:", info[0].Lag)
	for message := range mailbox.Subscribe(ctx, "ada", nil) {
		fmt.Println(message.Data)
		if message.Data == "print" {
			break
		}
	}
	// Output:
	// waiting: 2
	// compute
	// print
}

// A generator, a doubler and a printer form a pipeline. The doubler publishes and advances its offset in a
// single transaction, so each number is doubled exactly once even if a process dies.
func ExamplePipe() {
	ctx, stop := context.WithCancel(context.Background())
	db, done := openScratch(ctx)
	defer done()

	numbers := honker.NewStream[int](db, "numbers", nil)
	doubled := honker.NewStream[int](db, "doubled", nil)
	numbers.PublishMany(ctx, []int{1, 2, 3})

	doubler := make(chan error)
	go func() {
		doubler <- honker.Pipe(ctx, numbers, "doubler", doubled, func(_ context.Context, n *honker.Event[int]) (int, error) {
			return 2 * n.Data, nil // an error ends the pipe; honker.ErrSkip skips the event
		})
	}()
	for n := range doubled.Subscribe(ctx, "printer", nil) {
		fmt.Println(n.Data)
		if n.Data == 6 {
			break
		}
	}
	stop()
	fmt.Println("doubler:", <-doubler)
	// Output:
	// 2
	// 4
	// 6
	// doubler: <nil>
}

// A stream's retention is stored in the file. Compact never deletes events that a consumer has not seen.
func ExampleStream_Compact() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	logs := honker.NewStream[int](db, "logs", nil)
	logs.PublishMany(ctx, make([]int, 100))
	logs.SaveOffset(ctx, "archive", 30)

	logs.SetRetention(ctx, honker.Retention{MaxCount: 10})
	stats, err := logs.Compact(ctx)
	fmt.Println("deleted", stats.Deleted, "of", stats.Policy, "because of", stats.PinnedBy, err)

	logs.SaveOffset(ctx, "archive", 100)
	stats, err = logs.Compact(ctx)
	fmt.Println("deleted", stats.Deleted, "more", err)
	// Output:
	// deleted 30 of 90 because of consumer "archive" <nil>
	// deleted 60 more <nil>
}

// A rebuild empties the read model and moves its consumer to the beginning in a single transaction.
func ExampleStream_SeekTx() {
	ctx := context.Background()
	db, done := openScratch(ctx)
	defer done()

	orders := honker.NewStream[int](db, "orders", nil)
	orders.PublishMany(ctx, []int{5, 7})
	orders.SaveOffset(ctx, "totals", 2)
	db.SQL().ExecContext(ctx, `CREATE TABLE totals (cents INTEGER)`)

	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if gone, err := orders.Compacted(ctx); err != nil || gone > 0 {
			return errors.Join(err, fmt.Errorf("events up to %d are gone", gone))
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM totals`); err != nil {
			return err
		}
		return orders.SeekTx(ctx, tx, "totals", honker.Beginning)
	})
	offset, _ := orders.Offset(ctx, "totals")
	fmt.Println("offset", offset, err)
	// Output:
	// offset 0 <nil>
}

package honker_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/honker-go/honker"
)

// The members of a group share the events of a stream. One that fails does not hold up
// the others: it comes again when there are no fresh ones.
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

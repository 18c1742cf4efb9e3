package honker_test

import (
	"context"
	"fmt"
	"log"

	"github.com/honker-go/honker"
)

func ExampleDB_Listen() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	db.Notify(ctx, "prices", "nobody hears this")
	prices, err := db.Listen(ctx, "prices") // from now on, of any process
	if err != nil {
		log.Fatal(err)
	}
	defer prices.Close()

	db.Notify(ctx, "prices", map[string]int{"tea": 395})
	db.Notify(ctx, "weather", "rain")
	db.Notify(ctx, "prices", map[string]int{"tea": 410})

	for n, err := range prices.All(ctx) {
		var price struct{ Tea int }
		if err != nil || n.Decode(&price) != nil {
			log.Fatal(err)
		}
		fmt.Println("tea costs", price.Tea)
		if price.Tea > 400 {
			break
		}
	}
	// Output:
	// tea costs 395
	// tea costs 410
}

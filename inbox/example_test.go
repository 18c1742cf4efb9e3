package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/inbox"
	"github.com/honker-go/honker/internal/webhook"
)

const exampleSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

type order struct {
	Number int `json:"number"`
}

// openExample opens a database in a temporary directory. remove closes and deletes it.
func openExample() (db *honker.DB, remove func()) {
	dir, err := os.MkdirTemp("", "inbox")
	if err != nil {
		log.Fatal(err)
	}
	if db, err = honker.Open(context.Background(), filepath.Join(dir, "app.db"), nil); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}

// post signs and sends a message and returns the HTTP status of the response.
func post(url, id, body string) (status int) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	keys, _ := webhook.ParseKeys(exampleSecret)
	keys.Sign(req.Header, id, time.Now(), []byte(body))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func Example() {
	ctx := context.Background()
	db, remove := openExample()
	defer remove()
	in, err := inbox.New(db, &inbox.Options{Source: "shop", Secrets: []string{exampleSecret}})
	if err != nil {
		log.Fatal(err)
	}
	orders := honker.NewQueue[order](db, "orders", nil)
	server := httptest.NewServer(in.Handler(inbox.Enqueue(orders)))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()

	fmt.Println(post(server.URL, "msg_1", `{"number": 1}`))
	fmt.Println(post(server.URL, "msg_1", `{"number": 1}`)) // as if the first response had been lost
	fmt.Println(post(server.URL, "msg_2", `{"number": "two"}`))

	stats, err := orders.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.Ready, "job")
	// Output:
	// 204
	// 204
	// 422
	// 1 job
}

// A custom handler writes to the application's tables in the transaction that records the message.
func ExampleInbox_Handler() {
	ctx := context.Background()
	db, remove := openExample()
	defer remove()
	if _, err := db.SQL().ExecContext(ctx, `CREATE TABLE orders (source TEXT, number INTEGER)`); err != nil {
		log.Fatal(err)
	}
	in, err := inbox.New(db, &inbox.Options{Source: "shop", Secrets: []string{exampleSecret}})
	if err != nil {
		log.Fatal(err)
	}
	packing := honker.NewQueue[order](db, "packing", nil)
	server := httptest.NewServer(in.Handler(func(ctx context.Context, tx *sql.Tx, m *inbox.Message) error {
		var o order
		if err := m.Decode(&o); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1, $2)`, m.Source, o.Number); err != nil {
			return err
		}
		_, err := packing.EnqueueTx(ctx, tx, o)
		return err
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()

	for range 3 {
		post(server.URL, "msg_1", `{"number": 1}`)
	}
	var n int
	if err := db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&n); err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "order")
	// Output:
	// 1 order
}

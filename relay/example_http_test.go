package relay_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// exampleDB returns a database for an example. remove closes and deletes it.
func exampleDB() (db *honker.DB, remove func()) {
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		log.Fatal(err)
	}
	quiet := &honker.Options{Logger: slog.New(slog.DiscardHandler)}
	db, err = honker.Open(context.Background(), filepath.Join(dir, "app.db"), quiet)
	if err != nil {
		log.Fatal(err)
	}
	return db, func() { db.Close(); os.RemoveAll(dir) }
}

// untilFinished returns options with an observer that calls stop after n messages are finished.
func untilFinished(n int, stop func()) *relay.Options {
	var mu sync.Mutex
	return &relay.Options{RetryBase: time.Millisecond, Observer: &relay.Observer{Finished: func(f relay.Finished) {
		mu.Lock()
		defer mu.Unlock()
		if n -= f.Processed; n == 0 {
			stop()
		}
	}}}
}

// A customer's webhooks are delivered in commit order. If the endpoint is down, they are delivered
// later, and later messages with the same key wait for the first.
func ExampleHTTP() {
	var down atomic.Bool
	down.Store(true)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s %s\n", r.Header.Get("Idempotency-Key"), body)
		if down.Swap(false) {
			http.Error(w, "restarting", http.StatusServiceUnavailable)
		}
	}))
	defer endpoint.Close()

	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	r := relay.New(db, untilFinished(2, stop))
	hooks := r.Queue("webhooks", 1)
	hooks.Handle(relay.HTTP(nil, endpoint.URL, &relay.HTTPOptions{Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}))
	_, _ = hooks.Send(ctx,
		relay.Outgoing{Key: "acme", Payload: []byte(`{"type":"order.created"}`)},
		relay.Outgoing{Key: "acme", Payload: []byte(`{"type":"order.paid"}`)})
	fmt.Println(r.Run(ctx))
	// Output:
	// webhooks/0/1 {"type":"order.created"}
	// webhooks/0/1 {"type":"order.created"}
	// webhooks/0/2 {"type":"order.paid"}
	// <nil>
}

// Each customer has a URL and a secret, selected by the message's key. Messages to an unknown
// customer become dead letters. PublicOnly protects against internal URLs entered by customers, as
// the last call shows.
func ExampleHTTPFunc() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("called", r.URL.Path)
	}))
	defer endpoint.Close()
	urls := map[string]string{"acme": endpoint.URL + "/acme", "blau": endpoint.URL + "/blau"}

	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	r := relay.New(db, untilFinished(4, stop))
	hooks := r.Queue("webhooks", 1)
	hooks.Handle(relay.HTTPFunc(nil, func(ctx context.Context, m *relay.Message) (string, *relay.HTTPOptions, error) {
		url, ok := urls[m.Key] // usually a database query
		if !ok {
			return "", nil, relay.Reject(fmt.Errorf("no customer %q", m.Key))
		}
		return url, &relay.HTTPOptions{Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, nil
	}))
	for _, customer := range []string{"acme", "blau", "cleo", "acme"} {
		_, _ = hooks.Send(ctx, relay.Outgoing{Key: customer, Payload: []byte(`{}`)})
	}
	fmt.Println(r.Run(ctx))
	for d := range hooks.Dead(context.Background(), &relay.DeadFilter{Key: "cleo"}) {
		fmt.Println("dead:", d.Key, d.LastError)
	}

	guarded := relay.HTTP(nil, "http://169.254.169.254/latest/meta-data", &relay.HTTPOptions{PublicOnly: true})
	err := guarded(context.Background(), &relay.Message{})
	fmt.Println(strings.HasSuffix(err.Error(), "address 169.254.169.254 refused: it is not public"))
	// Output:
	// called /acme
	// called /blau
	// called /acme
	// <nil>
	// dead: cleo no customer "cleo"
	// true
}

// A handler can override ClassifyHTTP. Here a 404 means that the endpoint is gone permanently.
func ExampleHTTPError() {
	endpoint := httptest.NewServer(http.NotFoundHandler())
	defer endpoint.Close()
	post := relay.HTTP(nil, endpoint.URL, nil)
	handler := func(ctx context.Context, m *relay.Message) error {
		err := post(ctx, m)
		var answer *relay.HTTPError
		if errors.As(err, &answer) && answer.Status == http.StatusNotFound {
			return relay.Reject(err)
		}
		return err
	}

	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	opts := untilFinished(1, stop)
	opts.Observer.Dead = func(d relay.Died) { fmt.Println("rejected:", d.Rejected) }
	r := relay.New(db, opts)
	hooks := r.Queue("webhooks", 1)
	hooks.Handle(handler)
	_, _ = hooks.Send(ctx, relay.Outgoing{Payload: []byte("{}")})
	fmt.Println(r.Run(ctx))
	// Output:
	// rejected: true
	// <nil>
}

// Ambiguous statuses are retried, because a proxy, a deployment or an expired token can also cause
// a 4xx response.
func ExampleClassifyHTTP() {
	for _, status := range []int{200, 204, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503} {
		fmt.Println(status, relay.ClassifyHTTP(status))
	}
	// Output:
	// 200 done
	// 204 done
	// 400 reject
	// 401 retry
	// 403 retry
	// 404 retry
	// 409 retry
	// 410 reject
	// 422 reject
	// 429 retry
	// 500 retry
	// 503 retry
}

// Several calls for a message share a deadline, so the second call only gets the time that the
// first left over. The deadline is before the lease expires, so the relay can still save the
// progress.
func ExampleQueue_Handle_severalCalls() {
	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	r := relay.New(db, untilFinished(1, stop))
	orders := r.Queue("orders", 1)
	call := func(ctx context.Context, name string) (time.Duration, error) {
		deadline, _ := ctx.Deadline() // HTTP requests and queries take ctx directly
		fmt.Println(name)
		return time.Until(deadline), ctx.Err()
	}
	orders.Handle(func(ctx context.Context, m *relay.Message) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		first, err := call(ctx, "enrich")
		if err != nil {
			return err
		}
		second, err := call(ctx, "publish")
		fmt.Println("less is left:", second < first)
		return err
	}, relay.Lease(time.Minute, 5*time.Second))
	_, _ = orders.Send(ctx, relay.Outgoing{Payload: []byte("{}")})
	fmt.Println(r.Run(ctx))
	// Output:
	// enrich
	// publish
	// less is left: true
	// <nil>
}

// The handler sends ten messages at a time and limits each call to one third of the remaining time.
// Messages acked before a failure are not sent again. After a failure, batches start small and
// double in size.
func ExampleQueue_HandleBatch_chunks() {
	calls := 0
	bulkSend := func(ctx context.Context, chunk []*relay.Message) error {
		if calls++; calls == 2 {
			fmt.Println("timeout")
			return context.DeadlineExceeded
		}
		fmt.Println(chunk[0].Seq, "to", chunk[len(chunk)-1].Seq)
		return ctx.Err()
	}

	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	r := relay.New(db, untilFinished(25, stop))
	exports := r.Queue("exports", 1)
	exports.HandleBatch(func(ctx context.Context, b *relay.Batch) error {
		for {
			chunk := b.NextChunk(10)
			if len(chunk) == 0 {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, b.Remaining()/3)
			err := bulkSend(ctx, chunk)
			cancel()
			if err != nil {
				return err // the whole chunk is unacked, so it is delivered again
			}
			b.AckChunk(len(chunk))
		}
	})
	for range 25 {
		_, _ = exports.Send(ctx, relay.Outgoing{Payload: []byte("{}")})
	}
	fmt.Println(r.Run(ctx))
	// Output:
	// 1 to 10
	// timeout
	// 11 to 11
	// 12 to 13
	// 14 to 17
	// 18 to 25
	// <nil>
}

// Unimportant work, such as a metric, can continue after its message was handled. WithoutCancel
// detaches it from the lease. Run does not wait for it.
func ExampleQueue_Handle_fireAndForget() {
	db, remove := exampleDB()
	defer remove()
	ctx, stop := context.WithCancel(context.Background())
	r := relay.New(db, untilFinished(1, stop))
	orders := r.Queue("orders", 1)
	var metrics sync.WaitGroup
	finished := make(chan struct{})
	orders.Handle(func(ctx context.Context, m *relay.Message) error {
		aside := context.WithoutCancel(ctx)
		metrics.Go(func() {
			<-finished
			fmt.Println("metric of", m.Seq, aside.Err())
		})
		return nil
	})
	_, _ = orders.Send(ctx, relay.Outgoing{Payload: []byte("{}")})
	fmt.Println(r.Run(ctx))
	close(finished)
	metrics.Wait()
	// Output:
	// <nil>
	// metric of 1 <nil>
}

// From turns each event of a stream into a webhook exactly once.
func ExampleFrom() {
	db, remove := exampleDB()
	defer remove()
	type order struct{ Customer, State string }
	orders := honker.NewStream[order](db, "orders", nil)
	ctx, stop := context.WithCancel(context.Background())
	r := relay.New(db, untilFinished(2, stop))
	hooks := r.Queue("webhooks", 1)
	hooks.Handle(func(_ context.Context, m *relay.Message) error {
		fmt.Println(m.Seq, string(m.Payload))
		return nil
	})
	_, _, _ = orders.PublishMany(ctx, []order{{"acme", "created"}, {"acme", "draft"}, {"acme", "paid"}})

	fed := make(chan error)
	go func() {
		fed <- relay.From(ctx, orders, "webhooks", hooks, func(_ context.Context, e *honker.Event[order]) ([]relay.Outgoing, error) {
			if e.Data.State == "draft" {
				return nil, honker.ErrSkip
			}
			body, err := json.Marshal(e.Data)
			return []relay.Outgoing{{Key: e.Data.Customer, Payload: body}}, err
		})
	}()
	fmt.Println(r.Run(ctx), <-fed)
	// Output:
	// 1 {"Customer":"acme","State":"created"}
	// 2 {"Customer":"acme","State":"paid"}
	// <nil> <nil>
}

// Webhooks for customers, reduced to the relay calls.
func ExampleHTTP_webhooks() {
	var (
		ctx      context.Context
		db       *honker.DB
		tx       *sql.Tx
		customer string
		secret   string // "whsec_…"
		body     []byte
	)
	r := relay.New(db, nil)
	hooks := r.Queue("webhooks", 16) // partitions
	hooks.Handle(relay.HTTP(nil, "https://example.com/hooks", &relay.HTTPOptions{Secret: secret}))
	go r.Run(ctx)

	// in the transaction that makes the change
	hooks.SendTx(ctx, tx, relay.Outgoing{Key: customer, Payload: body})
}

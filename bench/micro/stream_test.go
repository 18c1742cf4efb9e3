package micro_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

const (
	rawEvent  = `INSERT INTO _honker_stream (topic, key, payload, created_at) VALUES `
	rawEvents = `(?, ?, ?, ?)`
	rawScan   = `SELECT offset, topic, key, payload, created_at FROM _honker_stream WHERE topic = ? ORDER BY offset LIMIT ?`
)

// BenchmarkStream_Publish commits each event separately, compared with a raw INSERT.
func BenchmarkStream_Publish(b *testing.B) {
	for _, callers := range []int{1, 8} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchPublish(b, callers) })
	}
}

func benchPublish(b *testing.B, callers int) {
	r, db := openRaw(b), openBench(b, nil)
	insert, text := r.prepare(rawEvent+rawEvents), rawText(b)
	s := honker.NewStream[payload](db, "bench", nil)
	one := func() {
		if _, err := s.Publish(context.Background(), onePayload); err != nil {
			b.Error(err)
		}
	}
	compare(b, 1000,
		func(n int) {
			for range n {
				r.exec(insert, "bench", nil, text, time.Now().Unix())
			}
		},
		func(n int) { spread(callers, n, one) })
}

// BenchmarkStream_PublishMany commits events in batches, compared with raw INSERTs.
func BenchmarkStream_PublishMany(b *testing.B) {
	const size = 1000
	r, db := openRaw(b), openBench(b, nil)
	insert := r.prepare(rawEvent + strings.TrimSuffix(strings.Repeat(rawEvents+",", size), ","))
	text := rawText(b)
	s := honker.NewStream[payload](db, "bench", nil)
	compare(b, 10*size,
		func(n int) {
			for ; n > 0; n -= size {
				now := time.Now().Unix()
				args := make([]any, 0, 4*size)
				for range size {
					args = append(args, "bench", nil, text, now)
				}
				r.exec(insert, args...)
			}
		},
		func(n int) {
			for ; n > 0; n -= size {
				publishMany(b, s, min(n, size))
			}
		})
}

func publishMany(b *testing.B, s *honker.Stream[payload], n int, opts ...honker.PublishOption) {
	data := make([]payload, n)
	for i := range data {
		data[i] = onePayload
	}
	_, _, err := s.PublishMany(context.Background(), data, opts...)
	require.NoError(b, err)
}

// publishSome publishes n events to the topic "bench".
func publishSome(b *testing.B, db *honker.DB, n int) {
	s := honker.NewStream[payload](db, "bench", nil)
	for ; n > 0; n -= 5000 {
		publishMany(b, s, min(n, 5000))
	}
}

const history = 100_000

// scanned returns a raw reader of a file with history.
func scanned(b *testing.B) func(n int) {
	r, text := openRaw(b), rawText(b)
	insert := r.prepare(rawEvent + strings.TrimSuffix(strings.Repeat(rawEvents+",", 100), ","))
	begin, commit := r.prepare("BEGIN"), r.prepare("COMMIT")
	r.exec(begin)
	for range history / 100 {
		args := make([]any, 0, 400)
		for range 100 {
			args = append(args, "bench", nil, text, time.Now().Unix())
		}
		r.exec(insert, args...)
	}
	r.exec(commit)
	scan := r.prepare(rawScan)
	return func(n int) {
		rows, err := scan.Query("bench", n)
		require.NoError(b, err)
		defer rows.Close()
		var offset, created int64
		var topic string
		var key *string
		var data []byte
		for rows.Next() {
			if err := rows.Scan(&offset, &topic, &key, &data, &created); err != nil {
				b.Fatal(err)
			}
			if !json.Valid(data) { // a stream of json.RawMessage validates as well
				b.Fatal("no JSON")
			}
		}
		require.NoError(b, rows.Err())
	}
}

// BenchmarkStream_Read replays a stream without decoding the payloads.
func BenchmarkStream_Read(b *testing.B) {
	ceiling, db := scanned(b), openBench(b, nil)
	publishSome(b, db, history)
	s := honker.NewStream[json.RawMessage](db, "bench", nil)
	compare(b, history, ceiling, func(n int) {
		for _, err := range s.Read(context.Background(), 0) {
			if err != nil {
				b.Fatal(err)
			}
			if n--; n == 0 {
				break
			}
		}
	})
}

// BenchmarkStream_Subscribe replays a stream with a consumer that saves its offset, with default
// options.
func BenchmarkStream_Subscribe(b *testing.B) {
	ceiling, db := scanned(b), openBench(b, nil)
	publishSome(b, db, history)
	s := honker.NewStream[json.RawMessage](db, "bench", nil)
	round := 0
	compare(b, history, ceiling, func(n int) {
		round++
		for _, err := range s.Subscribe(context.Background(), fmt.Sprint("consumer-", round), nil) {
			if err != nil {
				b.Fatal(err)
			}
			if n--; n == 0 {
				break
			}
		}
	})
}

// BenchmarkStream_Filter filters a stream for every 10,000th event, compared with reading all
// events.
func BenchmarkStream_Filter(b *testing.B) {
	db := openBench(b, nil)
	s := honker.NewStream[payload](db, "bench", nil)
	for range history / 10_000 {
		publishMany(b, s, 9999, honker.EventKey("noise"))
		publishMany(b, s, 1, honker.EventKey("wanted"))
	}
	raw := honker.NewStream[json.RawMessage](db, "bench", nil)
	read := func(filter honker.Filter) func(int) {
		return func(n int) {
			for e, err := range raw.Tail(context.Background(), honker.Beginning, filter) {
				if err != nil {
					b.Fatal(err)
				}
				if e.Offset >= int64(n) || e.Offset > history-1 {
					break
				}
			}
		}
	}
	compare(b, history, read(nil), read(honker.KeyIs("wanted")))
}

// BenchmarkGroup_Ack runs a group whose members ack each event separately.
func BenchmarkGroup_Ack(b *testing.B) {
	for _, members := range []int{1, 4} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			db := openBench(b, nil)
			publishSome(b, db, b.N)
			s := honker.NewStream[json.RawMessage](db, "bench", nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var acked sync.WaitGroup
			acked.Add(b.N)
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range members {
				wg.Go(func() { ackAll(ctx, b, s, fmt.Sprint("member-", i), &acked) })
			}
			acked.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
			cancel()
			wg.Wait()
		})
	}
}

func ackAll(ctx context.Context, b *testing.B, s *honker.Stream[json.RawMessage], name string, acked *sync.WaitGroup) {
	m, err := s.Group("workers", nil).Join(ctx, name)
	if ctx.Err() != nil {
		return // the other members have acked all events
	}
	if err != nil {
		b.Error(err)
		return
	}
	for d, err := range m.All(ctx) {
		if err == nil {
			err = d.Ack(context.Background())
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.Error(err)
			return
		}
		acked.Done()
	}
}

// BenchmarkGroup_Work runs a group whose members handle an event at a time with Work.
func BenchmarkGroup_Work(b *testing.B) {
	for _, members := range []int{1, 4} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			db := openBench(b, nil)
			publishSome(b, db, b.N)
			g := honker.NewStream[json.RawMessage](db, "bench", nil).Group("workers", nil)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var handled sync.WaitGroup
			handled.Add(b.N)
			b.ResetTimer()
			var wg sync.WaitGroup
			for range members {
				wg.Go(func() {
					handle := func(context.Context, *honker.Delivery[json.RawMessage]) error { handled.Done(); return nil }
					if err := g.Work(ctx, handle, &honker.GroupWorkOptions{Workers: 1}); err != nil && ctx.Err() == nil {
						b.Error(err)
					}
				})
			}
			handled.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
			cancel()
			wg.Wait()
		})
	}
}

//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/inbox"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

func init() {
	children["bridge sender"] = sendOverBridge
	children["bridge receiver"] = receiveOverBridge
}

const (
	bridgeSecret     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	bridgePartitions = 4
)

// bridgeTask contains the arguments of a node of the bridge.
type bridgeTask struct {
	Path   string
	Socket string // socket of the receiver; unlike a port, no other process can take it while the receiver is dead
	Seed   uint64
}

// crossing is the payload of a message.
type crossing struct {
	Number    int64 `json:"number"`
	Partition int   `json:"partition"`
}

func bridgeQueue(db *honker.DB) (*relay.Relay, *relay.Queue) {
	r := relay.New(db, &relay.Options{Profile: relay.LowLatency, RetryMax: 100 * time.Millisecond})
	return r, r.Queue("crossings", bridgePartitions)
}

// throughSocket returns an HTTP client that connects to a Unix socket for all URLs.
func throughSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// sendOverBridge inserts numbered rows together with their messages, and relays the messages. It
// stops inserting when it reads a line.
func sendOverBridge() {
	a := testkit.ChildArgs[bridgeTask]()
	ctx := testkit.ChildContext()
	db, err := honker.Open(context.Background(), a.Path, nil)
	testkit.Must(err)
	r, q := bridgeQueue(db)
	post := relay.HTTP(throughSocket(a.Socket), "http://receiver/crossings", &relay.HTTPOptions{Secret: bridgeSecret, Source: "sender", Timeout: 5 * time.Second})
	q.Handle(post, relay.Lease(time.Second, time.Second/4))
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	testkit.Say("ready")
	enough := make(chan struct{})
	go func() {
		if _, ok := testkit.ReadLine(); ok {
			close(enough)
		}
	}()
	luck := testkit.Rand(a.Seed, 1)
	for adding := true; adding; {
		err := addCrossings(ctx, db, q, 1+luck.IntN(25))
		if ctx.Err() != nil {
			break
		}
		testkit.Must(err)
		select {
		case <-time.After(time.Duration(luck.IntN(250)) * time.Millisecond):
		case <-enough:
			testkit.Say("enough")
			adding = false
		case <-ctx.Done():
			adding = false
		}
	}
	testkit.Must(<-ran)
	testkit.Must(db.Close())
}

// addCrossings commits n numbered rows together with their messages.
func addCrossings(ctx context.Context, db *honker.DB, q *relay.Queue, n int) error {
	return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for range n {
			var c crossing
			if err := tx.QueryRowContext(ctx, `INSERT INTO sent SELECT coalesce(max(number), 0) + 1 FROM sent RETURNING number`).Scan(&c.Number); err != nil {
				return err
			}
			c.Partition = int(c.Number % bridgePartitions)
			body, err := json.Marshal(c)
			if err != nil {
				return err
			}
			if _, err := q.SendTx(ctx, tx, relay.Outgoing{Partition: c.Partition, Payload: body}); err != nil {
				return err
			}
		}
		return nil
	})
}

// receiveOverBridge inserts a row and enqueues a job for each message, in the transaction of the
// inbox. It also handles the jobs and inserts a row for each. The tables have no unique keys, so
// duplicates would be visible.
func receiveOverBridge() {
	a := testkit.ChildArgs[bridgeTask]()
	ctx := testkit.ChildContext()
	db, err := honker.Open(context.Background(), a.Path, nil)
	testkit.Must(err)
	again := func(inbox.Received) {
		_, err := db.SQL().Exec(`INSERT INTO again VALUES (1)`)
		testkit.Must(err)
	}
	in, err := inbox.New(db, &inbox.Options{Source: "sender", Secrets: []string{bridgeSecret}, Observer: &inbox.Observer{Duplicate: again}})
	testkit.Must(err)
	jobs := honker.NewQueue[crossing](db, "crossings", nil)
	_ = os.Remove(a.Socket) // left behind by a killed receiver
	listener, err := net.Listen("unix", a.Socket)
	testkit.Must(err)
	server := &http.Server{Handler: answerLate(a.Seed, in.Handler(func(ctx context.Context, tx *sql.Tx, m *inbox.Message) error {
		var c crossing
		if err := m.Decode(&c); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO crossed (number, partition) VALUES ($1, $2)`, c.Number, c.Partition); err != nil {
			return err
		}
		_, err := jobs.EnqueueTx(ctx, tx, c, honker.MaxAttempts(1000))
		return err
	}))}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	testkit.Say("ready")
	testkit.Must(jobs.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[crossing]) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO handled (number) VALUES ($1)`, job.Args.Number)
		return err
	}, &honker.WorkOptions{Lease: time.Second}))
	testkit.Must(server.Close())
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		testkit.Must(err)
	}
	testkit.Must(db.Close())
}

// answerLate delays each response for a random time after the commit, so that kills can happen in
// between.
func answerLate(seed uint64, h http.Handler) http.Handler {
	var mu sync.Mutex
	luck := testkit.Rand(seed, 2)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		mu.Lock()
		pause := time.Duration(luck.IntN(20)) * time.Millisecond
		mu.Unlock()
		_ = testkit.Within(r.Context(), nil, pause)
	})
}

// socketPath returns a path for a socket. t.TempDir may return a path that is too long.
func socketPath(t *testing.T) string {
	dir, err := os.MkdirTemp("", "bridge")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// Sender and receiver have separate databases and are killed at random. The receiver gets each
// committed message exactly once, in the order of its partition.
func TestBridge_Process_Killed(t *testing.T) {
	span := 2 * time.Minute
	if testing.Short() {
		span = brief(8 * time.Second)
	}
	fromPath, from := openShared(t)
	toPath, to := testkit.OpenShared(t)
	testkit.ExecAll(t, from.SQL(), `CREATE TABLE sent (number BIGINT PRIMARY KEY)`)
	testkit.ExecAll(t, to.SQL(), `CREATE TABLE crossed (place `+counted+`, number BIGINT NOT NULL, partition BIGINT NOT NULL)`,
		`CREATE TABLE handled (number BIGINT NOT NULL)`, `CREATE TABLE again (n BIGINT)`)
	socket := socketPath(t)

	seed := testkit.Seed(t)
	draw := testkit.Rand(seed, 1)
	names := []string{"bridge sender", "bridge receiver"}
	paths := []string{fromPath, toPath}
	nodes, kills := make([]*testkit.Child, 2), make([]int, 2)
	start := func(i int) {
		seed++
		nodes[i] = testkit.StartChild(t, names[i], bridgeTask{Path: paths[i], Socket: socket, Seed: seed})
		require.Equal(t, "ready", nodes[i].Line(testkit.Timeout))
	}
	start(0)
	start(1)
	for began := time.Now(); time.Since(began) < span; {
		_ = testkit.Within(t.Context(), nil, time.Duration(draw.Int64N(int64(500*time.Millisecond))))
		i := draw.IntN(2)
		nodes[i].Kill()
		kills[i]++
		if draw.IntN(4) == 0 { // kill both
			nodes[1-i].Kill()
			kills[1-i]++
			start(1 - i)
		}
		start(i)
	}
	nodes[0].Tell("enough")
	require.Equal(t, "enough", nodes[0].Line(testkit.Timeout))
	count := func(db *honker.DB, table string) int64 {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM `+table)
	}
	sent := count(from, "sent")
	_, q := bridgeQueue(from)
	testkit.Eventually(t, 3*testkit.Timeout, "all have crossed and are done", func() bool {
		info, err := q.Info(t.Context())
		require.NoError(t, err)
		processed := int64(0)
		for _, p := range info.Partitions {
			processed += p.Processed
		}
		return processed >= sent && count(to, "handled") >= sent
	})
	for _, node := range nodes {
		require.Empty(t, node.End())
	}

	t.Logf("%d messages, %d kills of the sender, %d of the receiver, %d duplicates refused", sent, kills[0], kills[1], count(to, "again"))
	require.EqualValues(t, sent, testkit.QueryInt(t, from.SQL(), `SELECT max(number) FROM sent`), "the numbers have no gap")
	for _, table := range []string{"crossed", "handled"} {
		numbers, err := testkit.Rows(to.SQL(), `SELECT number FROM `+table+` ORDER BY number`)
		require.NoError(t, err)
		require.EqualValues(t, sent, len(numbers), table)
		for i, n := range numbers {
			require.Equal(t, strconv.Itoa(i+1), n, table)
		}
	}
	require.Zero(t, testkit.QueryInt(t, to.SQL(), `SELECT count(*) FROM (
  SELECT number < lag(number) OVER (PARTITION BY partition ORDER BY place) AS back FROM crossed) AS pairs WHERE back`), "out of order")
	require.EqualValues(t, sent, testkit.QueryInt(t, to.SQL(), testkit.CountReceived))
	require.Zero(t, count(to, "_honker_live"))
	for d, err := range q.Dead(t.Context(), nil) {
		require.NoError(t, err)
		require.Fail(t, "a message has died", d.LastError)
	}
	if !testing.Short() {
		require.Positive(t, count(to, "again"), "no kill has made a message come again")
	}
	require.NoError(t, from.Check(t.Context()))
	require.NoError(t, to.Check(t.Context()))
}

// A message that the receiver rejects becomes a dead letter of the sender, with the reason, and the
// next message follows. A message that fails temporarily is delivered later.
func TestBridge_Rejected(t *testing.T) {
	_, from := openShared(t)
	_, to := testkit.OpenShared(t)
	in, err := inbox.New(to, &inbox.Options{Source: "sender", Secrets: []string{bridgeSecret}})
	require.NoError(t, err)
	jobs := honker.NewQueue[crossing](to, "crossings", nil)
	enqueue, failures := inbox.Enqueue(jobs), 3
	socket := socketPath(t)
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: in.Handler(func(ctx context.Context, tx *sql.Tx, m *inbox.Message) error {
		if failures > 0 {
			failures--
			return errors.New("not now")
		}
		return enqueue(ctx, tx, m)
	})}
	go server.Serve(listener)
	defer server.Close()

	r, q := bridgeQueue(from)
	client := throughSocket(socket)
	defer client.CloseIdleConnections()
	q.Handle(relay.HTTP(client, "http://receiver", &relay.HTTPOptions{Secret: bridgeSecret}))
	_, err = q.Send(t.Context(), relay.Outgoing{Payload: []byte(`{"number": "one"}`)}, relay.Outgoing{Payload: []byte(`{"number": 2}`)})
	require.NoError(t, err)
	stop := testkit.Background(t, r.Run)
	testkit.Eventually(t, testkit.Timeout, "the second has arrived", func() bool {
		return testkit.QueryInt(t, to.SQL(), `SELECT count(*) FROM _honker_live`) == 1
	})
	require.NoError(t, stop())
	var reasons []string
	for d, err := range q.Dead(t.Context(), nil) {
		require.NoError(t, err)
		reasons = append(reasons, d.LastError)
	}
	require.Len(t, reasons, 1)
	require.Contains(t, reasons[0], "422 Unprocessable Entity: cannot decode payload")
}

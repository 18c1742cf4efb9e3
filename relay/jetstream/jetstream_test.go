package jetstream_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/relay/jetstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a server whose files survive a restart.
type broker struct {
	t    *testing.T
	opts server.Options
	*server.Server
}

func startBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t, opts: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	b.start()
	b.opts.Port = b.port()
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	opts := b.opts // the server modifies its options
	s, err := server.NewServer(&opts)
	require.NoError(b.t, err)
	b.Server = s
	s.Start()
	require.True(b.t, s.ReadyForConnections(time.Minute))
}

func (b *broker) stop() {
	b.Shutdown()
	b.WaitForShutdown()
}

func (b *broker) port() int {
	_, port, _ := strings.Cut(strings.TrimPrefix(b.ClientURL(), "nats://"), ":")
	n, err := strconv.Atoi(port)
	require.NoError(b.t, err)
	return n
}

func (b *broker) connect() natsjs.JetStream {
	b.t.Helper()
	conn, err := nats.Connect(b.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(b.t, err)
	b.t.Cleanup(conn.Close)
	js, err := natsjs.New(conn)
	require.NoError(b.t, err)
	return js
}

// orders creates the ORDERS stream.
func orders(t *testing.T, js natsjs.JetStream, change func(*natsjs.StreamConfig)) natsjs.Stream {
	t.Helper()
	c := natsjs.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	if change != nil {
		change(&c)
	}
	s, err := js.CreateStream(t.Context(), c)
	require.NoError(t, err)
	return s
}

func atomically(c *natsjs.StreamConfig) { c.AllowAtomicPublish = true }

// stored returns all messages in a stream.
func stored(t *testing.T, s natsjs.Stream) (all []*natsjs.RawStreamMsg) {
	t.Helper()
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}

func payloads(all []*natsjs.RawStreamMsg) (texts []string) {
	for _, m := range all {
		texts = append(texts, string(m.Data))
	}
	return texts
}

func message(seq int64, payload string) *relay.Message {
	return &relay.Message{Queue: "orders", Partition: 3, Seq: seq, Type: "application/json", Payload: []byte(payload)}
}

func TestPublish(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, nil)
	publish := jetstream.Publish(js, "orders.eu", nil)
	require.NoError(t, publish(t.Context(), message(7, "a\x00b")))
	all := stored(t, s)
	require.Len(t, all, 1)
	require.Equal(t, "orders.eu", all[0].Subject)
	require.Equal(t, "a\x00b", string(all[0].Data))
	require.Equal(t, nats.Header{"Content-Type": {"application/json"}, "Nats-Msg-Id": {"orders/3/7"}}, all[0].Header)
}

// Publishing a message twice stores it once. The same ID with another Source is a different
// message.
func TestPublish_Again(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, nil)
	for range 3 {
		require.NoError(t, jetstream.Publish(js, "orders.eu", nil)(t.Context(), message(1, "a")))
		require.NoError(t, jetstream.Publish(js, "orders.eu", &jetstream.Options{Source: "shop2"})(t.Context(), message(1, "b")))
	}
	require.Equal(t, []string{"a", "b"}, payloads(stored(t, s)))
}

// Every queue name yields a distinct ID.
func TestPublish_NamesOfQueues(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, nil)
	names := []string{"a b", "a\r\nb", "a\nb", "a%20b", "ä", " a", "a", "a\tb"}
	for range 2 {
		for _, name := range names {
			m := message(1, name)
			m.Queue = name
			require.NoError(t, jetstream.Publish(js, "orders.eu", nil)(t.Context(), m))
		}
	}
	require.Equal(t, names, payloads(stored(t, s)))
}

func TestPublish_SubjectOfTheMessage(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, nil)
	opts := &jetstream.Options{Subject: func(m *relay.Message) string { return fmt.Sprintf("orders.p%d", m.Partition) }}
	require.NoError(t, jetstream.Publish(js, "", opts)(t.Context(), message(1, "a")))
	require.Equal(t, "orders.p3", stored(t, s)[0].Subject)
}

// If no stream covers the subject, the handler returns an error, so the message is retried.
func TestPublish_NoStream(t *testing.T) {
	js := startBroker(t).connect()
	err := jetstream.Publish(js, "orders.eu", nil)(t.Context(), message(1, "a"))
	require.ErrorIs(t, err, natsjs.ErrNoStreamResponse)
	require.ErrorContains(t, err, "publish to orders.eu")
}

// If the broker is down, the handler waits until ctx is done.
func TestPublish_NoBroker(t *testing.T) {
	b := startBroker(t)
	js := b.connect()
	b.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, jetstream.Publish(js, "orders.eu", nil)(ctx, message(1, "a")), context.DeadlineExceeded)
}

func TestPublish_BadOptions(t *testing.T) {
	js := startBroker(t).connect()
	for _, publish := range []func(context.Context, *relay.Message) error{
		jetstream.Publish(nil, "orders.eu", nil),
		jetstream.Publish(js, "", nil),
	} {
		require.ErrorIs(t, publish(t.Context(), message(1, "a")), honker.ErrInvalid)
	}
	require.ErrorIs(t, jetstream.PublishBatch(js, "", nil)(t.Context(), nil), honker.ErrInvalid)
	require.ErrorIs(t, jetstream.PublishBatch(nil, "a", nil)(t.Context(), nil), honker.ErrInvalid)
}

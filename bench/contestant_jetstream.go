package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const natsServer = "nats-server"

// jetStreams is a work queue and a stream of NATS JetStream, on its own server with file storage.
// JetStream syncs its files every two minutes and otherwise relies on the kernel.
func jetStreams() Contestant {
	return Contestant{
		Name:  jetStreamName,
		About: "a NATS server with file storage and its defaults: fsync every two minutes; pull consumers with explicit acks; a connection by TCP; its jobs are not in the application's file",
		Best:  8,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			if d == Full {
				return nil, fmt.Errorf("%w: the server that Debian has cannot sync each message", errNA)
			}
			return openJetStream(ctx, path)
		},
	}
}

type jetStreamQueue struct {
	*server
	conn   *nats.Conn
	js     jetstream.JetStream
	jobs   jetstream.Stream
	events jetstream.Stream
}

func openJetStream(ctx context.Context, path string) (*jetStreamQueue, error) {
	dir, err := scratch(path, "nats")
	if err != nil {
		return nil, err
	}
	s, err := startServer(ctx, path, func() (string, string, error) { return natsAddress(dir) },
		natsServer, "--addr", "127.0.0.1", "--port", "-1", "--ports_file_dir", dir, "--jetstream", "--store_dir", dir)
	if err != nil {
		return nil, err
	}
	j := &jetStreamQueue{server: s}
	if err := j.connect(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return j, nil
}

// natsAddress returns the address of the server in dir, from the ports file that the server writes.
func natsAddress(dir string) (network, addr string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.ports"))
	if err != nil || len(files) == 0 {
		return "", "", errors.Join(err, os.ErrNotExist)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return "", "", err
	}
	var ports struct{ NATS []string }
	if err := json.Unmarshal(text, &ports); err != nil || len(ports.NATS) == 0 {
		return "", "", errors.Join(err, os.ErrNotExist)
	}
	return "tcp", strings.TrimPrefix(ports.NATS[0], "nats://"), nil
}

func (j *jetStreamQueue) connect(ctx context.Context) (err error) {
	if j.conn, err = nats.Connect(j.addr); err != nil {
		return err
	}
	if j.js, err = jetstream.New(j.conn, jetstream.WithPublishAsyncMaxPending(1000)); err != nil {
		return err
	}
	j.jobs, err = j.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "jobs", Subjects: []string{"jobs"}, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		return err
	}
	j.events, err = j.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "events", Subjects: []string{"events"}})
	return err
}

func (j *jetStreamQueue) publish(ctx context.Context, subject string, n int64) error {
	_, err := j.js.Publish(ctx, subject, []byte(payloadText(n)))
	return err
}

// publishBatch publishes n messages before it waits for their acks. It does not use batches.
func (j *jetStreamQueue) publishBatch(ctx context.Context, subject string, n int) error {
	acks := make([]jetstream.PubAckFuture, n)
	for i := range acks {
		var err error
		if acks[i], err = j.js.PublishAsync(subject, []byte(payloadText(int64(i)))); err != nil {
			return err
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (j *jetStreamQueue) Enqueue(ctx context.Context, n int64) error {
	return j.publish(ctx, "jobs", n)
}

func (j *jetStreamQueue) EnqueueBatch(ctx context.Context, n int) error {
	return j.publishBatch(ctx, "jobs", n)
}

func (j *jetStreamQueue) Publish(ctx context.Context, n int64) error {
	return j.publish(ctx, "events", n)
}

func (j *jetStreamQueue) PublishBatch(ctx context.Context, n int) error {
	return j.publishBatch(ctx, "events", n)
}

func (j *jetStreamQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return consume(ctx, j.jobs, "workers", workers, jetstream.Msg.Ack, handle)
}

func (j *jetStreamQueue) Subscribe(ctx context.Context, consumer string, handle func(n int64)) error {
	return consume(ctx, j.events, consumer, 1, jetstream.Msg.Ack, handle)
}

// SubscribeAcking waits for the server's confirmation of each ack.
func (j *jetStreamQueue) SubscribeAcking(ctx context.Context, consumer string, handle func(n int64)) error {
	confirmed := func(m jetstream.Msg) error { return m.DoubleAck(ctx) }
	return consume(ctx, j.events, consumer, 1, confirmed, handle)
}

func (j *jetStreamQueue) Member(ctx context.Context, group, _ string, handle func(n int64)) error {
	return consume(ctx, j.events, group, 1, jetstream.Msg.Ack, handle)
}

// consume handles and acks the messages of a durable consumer in several goroutines.
func consume(ctx context.Context, s jetstream.Stream, name string, workers int, ack func(jetstream.Msg) error, handle func(n int64)) error {
	c, err := s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return err
	}
	messages := make(chan jetstream.Msg, workers)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for m := range messages {
				if n, err := readPayload(m.Data()); err == nil {
					handle(n)
					_ = ack(m)
				}
			}
		})
	}
	come, err := c.Consume(func(m jetstream.Msg) { messages <- m })
	if err == nil {
		<-ctx.Done()
		come.Drain()
		<-come.Closed()
	}
	close(messages)
	all.Wait()
	return err
}

func (j *jetStreamQueue) Unfinished(ctx context.Context) (int, error) {
	info, err := j.jobs.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

func (j *jetStreamQueue) Close() error {
	j.conn.Close()
	return j.server.Close()
}

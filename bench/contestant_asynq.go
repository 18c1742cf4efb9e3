package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/hibiken/asynq"
)

const redisServer = "redis-server"

// asynqs is asynq on its own Redis with an append-only file. NORMAL syncs every second, FULL on
// each write.
func asynqs() Contestant {
	return Contestant{
		Name:  asynqName,
		About: "its defaults, on a Redis server with an append-only file, appendfsync everysec, and always where a table says FULL; a socket file; looks for new tasks each second once there were none; its jobs are not in the application's file",
		Best:  64,
		Poll:  time.Second,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			return openAsynq(ctx, path, d)
		},
	}
}

type asynqQueue struct {
	*server
	redis     asynq.RedisClientOpt
	client    *asynq.Client
	inspector *asynq.Inspector
}

var appendfsync = map[Durability]string{Normal: "everysec", Full: "always"}

func openAsynq(ctx context.Context, path string, d Durability) (*asynqQueue, error) {
	dir, err := scratch(path, "redis")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "s")
	where := func() (string, string, error) {
		_, err := os.Stat(socket)
		return "unix", socket, err
	}
	s, err := startServer(ctx, path, where, redisServer, "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", appendfsync[d])
	if err != nil {
		return nil, err
	}
	opt := asynq.RedisClientOpt{Network: "unix", Addr: s.addr}
	return &asynqQueue{s, opt, asynq.NewClient(opt), asynq.NewInspector(opt)}, nil
}

func (a *asynqQueue) Enqueue(ctx context.Context, n int64) error {
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask("bench", []byte(payloadText(n))))
	return err
}

func (a *asynqQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	s := asynq.NewServer(a.redis, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	err := s.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		n, err := readPayload(t.Payload())
		if err == nil {
			handle(n)
		}
		return err
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

func (a *asynqQueue) Unfinished(context.Context) (int, error) {
	info, err := a.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}

func (a *asynqQueue) Close() error {
	_ = a.client.Close()
	_ = a.inspector.Close()
	return a.server.Close()
}

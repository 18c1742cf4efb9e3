package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// fillStreams adds events, a consumer, and a group with dead events.
func fillStreams(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	db := open(t, "app.db")
	defer func() { require.NoError(t, db.Close()) }()
	orders := honker.NewStream[json.RawMessage](db, "orders", nil)
	for _, key := range []string{"created", "paid", "created:eu", ""} {
		_, err := orders.Publish(ctx, json.RawMessage(`{"id": 12345678901234567890, "key": "`+key+`"}`), honker.EventKey(key))
		require.NoError(t, err)
		time.Sleep(time.Minute)
	}
	_, err := honker.NewStream[int](db, "clicks", nil).Publish(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, orders.SetRetention(ctx, honker.Retention{MaxCount: 1000, MaxAge: 36 * time.Hour}))
	_, err = orders.SaveOffset(ctx, "shipping", 2)
	require.NoError(t, err)
	_, err = honker.NewStream[int](db, "orders*", nil).SaveOffset(ctx, "audit", 5)
	require.NoError(t, err)
	member, err := orders.Group("mailers", &honker.GroupOptions{MaxAttempts: 1}).Join(ctx, "m1")
	require.NoError(t, err)
	events, err := member.Claim(ctx, 3)
	require.NoError(t, err)
	for _, e := range events[:2] {
		require.NoError(t, e.Nack(ctx, errors.New("no such address")))
	}
}

func TestGolden_Streams(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("streams", "-o", "table")
		fillStreams(t)
		s.each("streams")
		s.do("stream", "show", "orders", "-o", "table")
		s.do("stream", "show", "nothing")
		s.each("stream", "read", "orders", "--limit", "2")
		s.do("stream", "read", "orders", "--after", "2", "-o", "name")
		s.do("stream", "read", "*", "-o", "table")
		s.do("stream", "read", "orders", "--key", "created*", "-o", "name")
		s.do("stream", "read", "orders", "--limit", "-1")
		s.do("stream", "tail", "orders", "-n", "2", "-o", "table")
		s.do("stream", "tail", "orders", "-n", "1", "--key", "paid", "-o", "jsonl")
		s.do("stream", "tail", "orders", "-n", "0")
		s.do("stream", "tail", "*", "-n", "2", "-o", "name")
		s.do("stream", "tail", "orders", "--follow", "-o", "json")
		s.matches("streams")
	})
}

func TestGolden_Publish(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.each("stream", "publish", "orders", `{"id": 17}`, "--key", "created")
		s.do("stream", "publish", "orders", "{id}")
		s.do("stream", "publish", "orders*", "1")
		s.stdin = "1\n\n2\n"
		s.do("stream", "publish", "orders", "-")
		s.stdin = "1\nx\n"
		s.do("stream", "publish", "orders", "-")
		s.do("stream", "tail", "orders", "-n", "3", "-o", "jsonl")
		s.matches("publish")
	})
}

func TestGolden_Consumers(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("consumers", "-o", "table")
		fillStreams(t)
		s.each("consumers")
		s.do("consumers", "orders", "-o", "name")
		s.do("consumer", "show", "orders", "shipping", "-o", "table")
		s.do("consumer", "show", "orders", "nobody's")
		s.do("consumer", "seek", "orders", "shipping", "1", "-o", "table")
		s.do("consumer", "seek", "orders", "shipping", "beginning")
		s.do("consumer", "seek", "orders", "shipping", "end")
		s.do("consumer", "seek", "orders", "shipping", "90s")
		s.do("consumer", "seek", "orders", "shipping", "there")
		s.do("consumer", "seek", "orders", "nobody's", "end")
		s.do("__complete", "consumer", "rm", "")
		s.do("__complete", "consumer", "rm", "orders", "")
		s.do("consumer", "rm", "orders", "shipping")
		s.do("consumer", "rm", "orders", "shipping")
		s.matches("consumers")
	})
}

func TestGolden_Groups(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		s.do("groups", "-o", "table")
		fillStreams(t)
		s.each("groups")
		s.each("group", "show", "orders", "mailers")
		s.do("group", "show", "orders", "nothing")
		s.each("group", "dead", "orders", "mailers")
		s.do("group", "dead", "orders", "nothing")
		s.do("__complete", "group", "discard", "orders", "")
		s.do("__complete", "group", "discard", "orders", "mailers", "")
		s.do("group", "redeliver", "orders", "mailers")
		s.do("group", "redeliver", "orders", "mailers", "--all", "--dry-run")
		s.do("group", "redeliver", "orders", "mailers", "--all")
		s.do("group", "redeliver", "orders", "mailers", "one")
		s.do("group", "redeliver", "orders", "mailers", "99")
		s.do("group", "redeliver", "orders", "nothing", "1")
		s.do("group", "redeliver", "orders", "mailers", "1", "-o", "table")
		s.do("group", "discard", "orders", "mailers", "--all", "--yes")
		s.do("group", "dead", "orders", "mailers")
		s.do("group", "rm", "orders", "mailers")
		s.do("group", "rm", "orders", "mailers")
		s.matches("groups")
	})
}

// The last events are found even if there are many events of other topics between them.
func TestTail_Sparse(t *testing.T) {
	t.Parallel()
	dir, db, _ := newFile(t)
	orders, clicks := honker.NewStream[int](db, "orders", nil), honker.NewStream[int](db, "clicks", nil)
	for n := range 5 {
		_, err := orders.Publish(t.Context(), n)
		require.NoError(t, err)
		_, _, err = clicks.PublishMany(t.Context(), make([]int, 1000))
		require.NoError(t, err)
	}
	for n, want := range map[string]string{"1": "4005\n", "3": "2003\n3004\n4005\n", "100": "1\n1002\n2003\n3004\n4005\n"} {
		got := ran(t, dir, "stream", "tail", "orders", "-n", n, "-o", "name")
		require.Equal(t, said{out: want}, got)
	}
}

// Events committed by another process are printed immediately, and an interrupt ends the command
// without an error.
func TestTail_Follow(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("os.Interrupt cannot be sent")
	}
	dir, db, _ := newFile(t)
	orders := honker.NewStream[int](db, "orders", nil)
	publish := func(n int, key string) {
		_, err := orders.Publish(t.Context(), n, honker.EventKey(key))
		require.NoError(t, err)
	}
	publish(1, "created")
	publish(2, "paid")
	for _, format := range []string{"table", "tsv", "jsonl", "name"} {
		cmd := command(t, dir, "stream", "tail", "orders", "-n", "1", "--follow", "--key", "created*", "-q", "-o", format)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		pipe, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		out := bufio.NewReader(pipe)
		_, err = out.ReadString('\n')
		require.NoError(t, err)
		publish(3, "paid")
		publish(4, "created:eu")
		second, err := out.ReadString('\n')
		require.NoError(t, err)
		head, err := orders.Head(t.Context())
		require.NoError(t, err)
		require.Contains(t, second, strconv.FormatInt(head, 10), format)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Zero(t, codeOf(t, cmd.Wait()))
		require.Empty(t, errs.String())
	}
}

// A seek to a position before deleted events succeeds, and prints the last deleted offset.
func TestConsumer_Seek_Gone(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		db := open(t, "app.db")
		clicks := honker.NewStream[int](db, "clicks", nil)
		_, _, err := clicks.PublishMany(t.Context(), []int{1, 2, 3, 4, 5})
		require.NoError(t, err)
		_, err = clicks.SaveOffset(t.Context(), "view", 5)
		require.NoError(t, err)
		require.NoError(t, clicks.SetRetention(t.Context(), honker.Retention{MaxCount: 2}))
		_, err = clicks.Compact(t.Context())
		require.NoError(t, err)
		require.NoError(t, db.Close())
		const gone = "events up to offset 3 were deleted"
		r := s.run("consumer", "seek", "clicks", "view", "beginning")
		require.Zero(t, r.code)
		require.Contains(t, r.err, gone)
		require.NotContains(t, s.run("consumer", "seek", "clicks", "view", "beginning", "-q").err, gone)
		for _, to := range []string{"3", "end"} {
			require.NotContains(t, s.run("consumer", "seek", "clicks", "view", to).err, gone, to)
		}
	})
}

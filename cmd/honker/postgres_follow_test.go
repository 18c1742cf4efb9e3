//go:build unix

package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/pgcluster"
)

// onSchema returns the binary with args, for the schema of p.
func onSchema(t *testing.T, p *person, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, t.TempDir(), args...)
	for name, value := range p.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// openSchema opens the schema of p, which it makes, as an application does.
func openSchema(t *testing.T, p *person) *honker.DB {
	t.Helper()
	db, err := honkerpg.Open(t.Context(), p.env[dsnVariable], &honkerpg.Options{Schema: p.env[schemaVariable],
		Options: honker.Options{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// The state of each object that a commit on the server has changed is printed.
func TestPostgres_Events(t *testing.T) {
	p, _ := onServer(t)
	db := openSchema(t, p)
	f := followBy(t, onSchema(t, p, "events", "-o", "jsonl"), "following")
	next := func(kind, name string) (h struct {
		Kind, Name string
		Queue      *struct{ Ready int }
		Stream     *struct{ Events int }
		Lock       *struct{ Owner string }
	}) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(f.line()), &h))
		require.Equal(t, kind+" "+name, h.Kind+" "+h.Name)
		return h
	}
	_, err := honker.NewQueue[int](db, "jobs", nil).EnqueueMany(t.Context(), []int{1, 2})
	require.NoError(t, err)
	require.Equal(t, 2, next("queue", "jobs").Queue.Ready)
	_, err = honker.NewStream[int](db, "orders", nil).Publish(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 1, next("stream", "orders").Stream.Events)
	lock, err := db.TryLock(t.Context(), "deploy", &honker.LockOptions{Owner: "ann"})
	require.NoError(t, err)
	require.Equal(t, "ann", next("lock", "deploy").Lock.Owner)
	require.NoError(t, lock.Unlock(t.Context()))
	require.Nil(t, next("lock", "deploy").Lock)
	f.interrupt()
}

// The last events of a topic are printed, and then those that the server commits.
func TestPostgres_Tail(t *testing.T) {
	p, _ := onServer(t)
	s := honker.NewStream[string](openSchema(t, p), "orders", nil)
	publish := func(payload string, opts ...honker.PublishOption) {
		_, err := s.Publish(t.Context(), payload, opts...)
		require.NoError(t, err)
	}
	publish("first", honker.EventKey("created"))
	cmd := onSchema(t, p, "stream", "tail", "orders", "--follow", "--key", "c*", "-o", "jsonl")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := json.NewDecoder(out)
	next := func() (e event) {
		t.Helper()
		require.NoError(t, lines.Decode(&e))
		return e
	}
	require.JSONEq(t, `"first"`, string(next().Payload))
	publish("paid", honker.EventKey("paid"))
	publish("second", honker.EventKey("created"))
	e := next()
	require.JSONEq(t, `"second"`, string(e.Payload))
	require.EqualValues(t, 3, e.Offset)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Zero(t, codeOf(t, cmd.Wait()))
}

// A command that waits for a job is woken by the server.
func TestPostgres_Wait(t *testing.T) {
	p, _ := onServer(t)
	q := honker.NewQueue[int](openSchema(t, p), "jobs", nil)
	id, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	done := make(chan said, 1)
	go func() { done <- p.run("job", "wait", "1", "--for", "1m") }()
	jobs, err := q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.NoError(t, q.SaveResult(t.Context(), id, "sent", 0))
	require.NoError(t, jobs[0].Ack(t.Context()))
	got := <-done
	require.Zero(t, got.code, got.err)
	require.Equal(t, `"sent"`+"\n", got.out)
}

// The dashboard shows the server, and changes it only with --write.
func TestPostgres_UI(t *testing.T) {
	p, _ := onServer(t)
	db := openSchema(t, p)
	_, err := honker.NewQueue[string](db, "emails", nil).Enqueue(t.Context(), "ann")
	require.NoError(t, err)
	pause := url.Values{"queue": {"emails"}}
	for _, c := range []struct {
		flags  []string
		status int
		paused bool
	}{
		{nil, http.StatusForbidden, false},
		{[]string{"--write"}, http.StatusOK, true},
	} {
		v := serveBy(t, onSchema(t, p, append([]string{"ui"}, c.flags...)...))

		require.Contains(t, v.sees(http.StatusOK, v.at.String()), "emails")
		status, _ := v.ask("/pause", pause)
		require.Equal(t, c.status, status)
		stats, err := honker.NewQueue[string](db, "emails", nil).Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.paused, stats.Pause != nil)
	}
}

// Through a pooler in transaction mode, all commands work with --pooler. Without it they say so.
func TestPostgres_Pooler(t *testing.T) {
	p, dsn := onServer(t)
	values := map[string]string{}
	for pair := range strings.FieldsSeq(dsn) {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	b, err := pgcluster.StartBouncer("host="+values["host"], "pool_mode = transaction", values["user"])
	if err != nil {
		t.Skip(err)
	}
	defer func() { require.NoError(t, b.Stop()) }()
	p.env[dsnVariable] = b.DSN() + " user=" + values["user"] + " dbname=" + values["dbname"]
	p.first = []string{"--pooler"}
	likeAFile(t, p)
	p.first = nil
	got := p.run("status")
	require.Equal(t, codeRefused, got.code, got.err)
	require.Equal(t, 1, strings.Count(got.err, "a pooler in transaction mode loses prepared statements"), got.err)
	require.Contains(t, got.err, "try: the same with --pooler\n")
}

//go:build unix

package move_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/honkerpg/move"
	"github.com/honker-go/honker/relay"
)

var (
	manyJobs     = flag.Int("jobs", 3000, "jobs in the file of TestRun_Killed")
	manyEvents   = flag.Int("events", 2000, "events in the file of TestRun_Killed")
	manyMessages = flag.Int("messages", 1000, "messages of a relay in the file of TestRun_Killed")
	manySent     = flag.Int("sent", 300, "jobs of package dispatch in the file of TestRun_Killed")
	window       = flag.Int("window", 300, "milliseconds within which a mover of TestRun_Killed is killed")
	kills        = flag.Int("kills", 2, "how often TestRun_Killed kills the mover")
)

// roleEnv holds the role of a child process, and the others its arguments.
const (
	roleEnv   = "HONKER_MOVE_ROLE"
	fileEnv   = "HONKER_MOVE_FILE"
	dsnEnv    = "HONKER_MOVE_DSN"
	schemaEnv = "HONKER_MOVE_SCHEMA"
	ledgerEnv = "HONKER_MOVE_LEDGER"
)

// consumers is the number of consumers of the topic.
const consumers = 3

// quiet drops the notes about failed attempts.
var quiet = slog.New(slog.DiscardHandler)

// child is a process of the application, or the mover. It ends at a signal.
func child() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	role, where, _ := strings.Cut(os.Getenv(roleEnv), "@")
	file := func() (*honker.DB, error) {
		return honker.Open(ctx, os.Getenv(fileEnv), &honker.Options{Logger: quiet})
	}
	server := func() (*honker.DB, error) {
		return honkerpg.Open(ctx, os.Getenv(dsnEnv), &honkerpg.Options{Options: honker.Options{Logger: quiet}, Schema: os.Getenv(schemaEnv)})
	}
	ledger, err := os.OpenFile(os.Getenv(ledgerEnv), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer ledger.Close()
	if role == "mover" {
		from, err := file()
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := server()
		if err != nil {
			return err
		}
		defer to.Close()
		r, err := move.Run(ctx, from, to, &move.Options{Progress: func(r move.Report) { fmt.Fprintln(ledger, "pass", r.Passes) }})
		fmt.Printf("%+v\n", *r)
		return err
	}
	open := file
	if where == "server" {
		open = server
	}
	db, err := open()
	if err != nil {
		return err
	}
	defer db.Close()
	switch role {
	case "produce":
		err = produce(ctx, db, ledger, where)
	case "work":
		err = work(ctx, db, ledger)
	case "consume":
		err = consume(ctx, db, ledger)
	case "relay":
		err = deliver(ctx, db, ledger)
	case "actor":
		err = perform(ctx, db, ledger, where)
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// produce enqueues jobs and publishes events until ctx ends, and notes their names.
func produce(ctx context.Context, db *honker.DB, ledger *os.File, where string) error {
	q, s := honker.NewQueue[string](db, "work", nil), honker.NewStream[string](db, "log", nil)
	hooks, d := relay.New(db, nil).Queue("hooks", partitions), dispatcher(db)
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d", where, n)
		first, err := q.Enqueue(context.WithoutCancel(ctx), name)
		if err == nil {
			_, err = fmt.Fprintln(ledger, "job", name)
		}
		if err == nil && n%10 == 0 {
			// The first job may have moved or run in between. The second then does not wait.
			_, err = q.Enqueue(context.WithoutCancel(ctx), name+"-after", honker.After(first))
			if err == nil {
				_, err = fmt.Fprintln(ledger, "job", name+"-after")
			}
		}
		if err == nil {
			_, err = s.Publish(context.WithoutCancel(ctx), name)
		}
		if err == nil {
			_, err = fmt.Fprintln(ledger, "event", name)
		}
		if err == nil {
			_, err = hooks.Send(context.WithoutCancel(ctx), outgoing(n, name))
		}
		if err == nil {
			_, err = fmt.Fprintln(ledger, "message", name)
		}
		if err == nil && n%10 == 0 {
			_, err = d.Send(context.WithoutCancel(ctx), osis, name)
			if err == nil {
				_, err = fmt.Fprintln(ledger, "sent", name)
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// work notes the jobs that it runs.
func work(ctx context.Context, db *honker.DB, ledger *os.File) error {
	return honker.NewQueue[string](db, "work", nil).Work(ctx, func(_ context.Context, j *honker.Job[string]) error {
		_, err := fmt.Fprintln(ledger, "job", j.Args)
		if err == nil && j.Attempts < attempts(j.Args) {
			return errors.New("the first attempt fails")
		}
		return err
	}, &honker.WorkOptions{Workers: 4})
}

// attempts returns how often work runs a job.
func attempts(name string) int {
	if strings.HasSuffix(name, "7") {
		return 2
	}
	return 1
}

// consume notes the events that its consumers read.
func consume(ctx context.Context, db *honker.DB, ledger *os.File) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for c := range consumers {
		all.Go(func() {
			name := fmt.Sprintf("c%d", c)
			err := honker.NewStream[string](db, "log", nil).Consume(ctx, name, func(_ context.Context, e *honker.Event[string]) error {
				_, err := fmt.Fprintln(ledger, name, e.Data)
				return err
			}, nil)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		})
	}
	all.Wait()
	return failed
}

// perform notes the jobs that its actor and an old worker, which takes their copies, run.
func perform(ctx context.Context, db *honker.DB, ledger *os.File, where string) error {
	d := dispatcher(db)
	note := func(name string) error {
		_, err := fmt.Fprintln(ledger, "sent", name)
		return err
	}
	actor := dispatch.NewActor(d, dispatch.Identity{Type: osis.Type, Instance: where}, func(_ context.Context, t *dispatch.Task[string]) (any, error) {
		return nil, note(t.Args)
	}, nil)
	old := honker.NewQueue[string](db, d.Keys().LegacyActorQueue(osis.Type), nil)
	return honker.Run(ctx, actor.Run, func(ctx context.Context) error {
		return old.Work(ctx, func(_ context.Context, j *honker.Job[string]) error { return note(j.Args) }, nil)
	})
}

// partitions is the number of partitions of the relay.
const partitions = 4

func outgoing(n int, name string) relay.Outgoing {
	return relay.Outgoing{Key: fmt.Sprintf("k%d", n%7), Payload: []byte(name)}
}

// deliver notes the messages of the relay, with their keys and numbers. Every tenth fails at first.
func deliver(ctx context.Context, db *honker.DB, ledger *os.File) error {
	r := relay.New(db, &relay.Options{RetryBase: 20 * time.Millisecond})
	r.Queue("hooks", partitions).Handle(func(_ context.Context, m *relay.Message) error {
		if strings.HasSuffix(string(m.Payload), "3") && m.Attempt == 0 {
			return errors.New("the first attempt fails")
		}
		_, err := fmt.Fprintf(ledger, "%s %s %s\n", m.Key, m.Payload, m.IdempotencyKey())
		return err
	})
	return r.Run(ctx)
}

// delivered checks the ledger of the relay: no message was delivered twice, no number was used twice, and the messages of a
// key that a program sent came in its order.
func (a *app) delivered(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(a.dir, "relay.all"))
	require.NoError(t, err)
	last, seen := map[string]int{}, map[string]bool{}
	lines := strings.Fields(string(text))
	for i := 0; i+2 < len(lines); i += 3 {
		source, number, _ := strings.Cut(lines[i+1], "-")
		n, err := strconv.Atoi(number)
		require.NoError(t, err)
		key := lines[i] + " of " + source
		before, some := last[key]
		require.True(t, !some || n > before, "%s: %d came after %d", key, n, before)
		require.False(t, seen[lines[i+1]] || seen[lines[i+2]], "%v", lines[i:i+3])
		last[key], seen[lines[i+1]], seen[lines[i+2]] = n, true, true
		if source == "r" {
			require.NotContains(t, last, lines[i]+" of file") // that was sent later
		}
	}
}

// app is the application of a test.
type app struct {
	file, dsn, schema, dir string
	processes              int
}

// process is a running child.
type process struct {
	*exec.Cmd
	out *strings.Builder
}

// start starts a process of the application in a role.
func (a *app) start(t *testing.T, role string) process {
	t.Helper()
	a.processes++
	name, _, _ := strings.Cut(role, "@")
	ledger := fmt.Sprintf("%s.%d", name, a.processes)
	if name == "relay" {
		ledger = "relay.all" // the order counts
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), roleEnv+"="+role, fileEnv+"="+a.file, dsnEnv+"="+a.dsn, schemaEnv+"="+a.schema,
		ledgerEnv+"="+filepath.Join(a.dir, ledger))
	p := process{c, new(strings.Builder)}
	c.Stdout, c.Stderr = p.out, t.Output()
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return p
}

// stop lets a process end.
func (p process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.NoError(t, p.Wait())
}

// lines counts the lines of the ledgers of a role.
func (a *app) lines(t *testing.T, role string) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.dir, role+".*"))
	require.NoError(t, err)
	count := map[string]int{}
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		for s := bufio.NewScanner(f); s.Scan(); {
			count[s.Text()]++
		}
		require.NoError(t, f.Close())
	}
	return count
}

// missing returns the lines of producers that no worker, consumer, actor or relay has noted.
func (a *app) missing(t *testing.T, made map[string]int) (missing []string) {
	t.Helper()
	worked, read, performed, delivered := a.lines(t, "work"), a.lines(t, "consume"), a.lines(t, "actor"), map[string]bool{}
	for line := range a.lines(t, "relay") {
		delivered[strings.Fields(line)[1]] = true
	}
	for line := range made {
		what, name, _ := strings.Cut(line, " ")
		there := true
		switch what {
		case "job":
			there = worked[line] >= attempts(line)
		case "sent":
			there = performed[line] > 0
		case "message":
			there = delivered[name]
		case "event":
			for c := range consumers {
				there = there && read[fmt.Sprintf("c%d %s", c, name)] > 0
			}
		}
		if !there {
			missing = append(missing, line)
		}
	}
	return missing
}

// forget deletes the ledgers of a role.
func (a *app) forget(t *testing.T, role string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(a.dir, role+".*"))
	require.NoError(t, err)
	for _, name := range files {
		require.NoError(t, os.Remove(name))
	}
}

// fill puts jobs, workflows and events into the file, and notes them as a producer does.
func (a *app) fill(t *testing.T) {
	t.Helper()
	db, err := honker.Open(t.Context(), a.file, nil)
	require.NoError(t, err)
	defer db.Close()
	ledger, err := os.Create(filepath.Join(a.dir, "produce.0"))
	require.NoError(t, err)
	defer ledger.Close()
	w := bufio.NewWriter(ledger)
	q, s := honker.NewQueue[string](db, "work", nil), honker.NewStream[string](db, "log", nil)
	named := func(what string, from, n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("%s-%d", what, from+i))
			fmt.Fprintln(w, map[bool]string{true: "event", false: "job"}[what == "e"], names[i])
		}
		return names
	}
	for n := 0; n < *manyJobs; n += 1000 {
		ids, err := q.EnqueueMany(t.Context(), named("j", n, 850))
		require.NoError(t, err)
		_, err = q.EnqueueMany(t.Context(), named("d", n, 50), honker.Delay(time.Second))
		require.NoError(t, err)
		_, err = q.EnqueueMany(t.Context(), named("w", n, 50), honker.After(ids[:3]...))
		require.NoError(t, err)
		b, err := db.NewBatch(t.Context(), nil)
		require.NoError(t, err)
		_, err = q.EnqueueMany(t.Context(), named("m", n, 40), honker.InBatch(b.ID))
		require.NoError(t, err)
		require.NoError(t, b.Seal(t.Context()))
		_, err = q.EnqueueMany(t.Context(), named("l", n, 10), honker.AfterBatch(b.ID))
		require.NoError(t, err)
	}
	for n := 0; n < *manyEvents; n += 1000 {
		_, _, err := s.PublishMany(t.Context(), named("e", n, 1000))
		require.NoError(t, err)
	}
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for n := range *manySent {
			name := fmt.Sprintf("s-%d", n)
			fmt.Fprintln(w, "sent", name)
			if _, err := dispatcher(db).SendTx(ctx, tx, osis, name); err != nil {
				return err
			}
		}
		return nil
	}))
	var messages []relay.Outgoing
	for n := range *manyMessages {
		name := fmt.Sprintf("r-%d", n)
		messages = append(messages, outgoing(n, name))
		fmt.Fprintln(w, "message", name)
	}
	_, err = relay.New(db, nil).Queue("hooks", partitions).Send(t.Context(), messages...)
	require.NoError(t, err)
	require.NoError(t, w.Flush())
}

// A mover is killed again and again, while programs produce, work and consume on both sides. Every job runs, and not
// again after it was acked, nor in a copy. Every consumer sees every event, and none twice. Every message of a relay is delivered once, in the order of
// its key.
func TestRun_Killed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &app{file: filepath.Join(dir, "app.db"), dsn: pgtest.DSN(t), schema: pgtest.Schema(t), dir: dir}
	a.fill(t)
	begun, patience := time.Now(), 5*time.Minute+time.Duration(*manyJobs)*3*time.Millisecond
	oldProducer, oldConsumer, oldWorker := a.start(t, "produce@file"), a.start(t, "consume@file"), a.start(t, "work@file")
	oldRelay, newRelay, newWorker := a.start(t, "relay@file"), a.start(t, "relay@server"), a.start(t, "work@server")
	oldActor, newActor := a.start(t, "actor@file"), a.start(t, "actor@server")
	for range *kills {
		a.forget(t, "mover")
		mover := a.start(t, "mover")
		require.Eventually(t, func() bool { return a.lines(t, "mover")["pass 0"] > 0 }, time.Minute, 5*time.Millisecond) // it has waited for the last lease
		time.Sleep(time.Duration(rand.IntN(*window)) * time.Millisecond)
		_ = mover.Process.Signal(syscall.SIGKILL)
		_ = mover.Wait()
	}
	oldConsumer.stop(t)
	// Events that the old consumers have read must be copied before the first new event.
	a.forget(t, "mover")
	mover := a.start(t, "mover")
	require.Eventually(t, func() bool { return a.lines(t, "mover")["pass 1"] > 0 }, patience, 20*time.Millisecond)
	newProducer := a.start(t, "produce@server")
	time.Sleep(500 * time.Millisecond) // both produce
	oldProducer.stop(t)
	oldWorker.stop(t)
	oldRelay.stop(t)
	oldActor.stop(t)
	require.NoError(t, mover.Wait())
	last := a.start(t, "mover") // the old processes have stopped, and their last rows move now
	require.NoError(t, last.Wait())
	newConsumer := a.start(t, "consume@server")
	newProducer.stop(t)
	made := a.lines(t, "produce")
	t.Logf("%d jobs, events and messages moved in %v: %s", len(made), time.Since(begun).Round(time.Second), last.out)

	arrived := func() bool { return len(a.missing(t, made)) == 0 }
	if !assert.Eventually(t, arrived, patience, max(100*time.Millisecond, time.Duration(*manyJobs/50)*time.Millisecond)) {
		missing := a.missing(t, made)
		t.Fatalf("%d never came: %q", len(missing), missing[:min(20, len(missing))])
	}
	newWorker.stop(t)
	newConsumer.stop(t)
	newRelay.stop(t)
	newActor.stop(t)
	a.delivered(t)
	twice := 0
	for line, n := range a.lines(t, "work") {
		require.Positive(t, made[line], line)
		if want := attempts(line); n != want {
			twice++
			t.Logf("%q ran %d times and not %d", line, n, want)
		}
	}
	for line, n := range a.lines(t, "actor") {
		require.Positive(t, made[line], line)
		if n > 1 {
			twice++
			t.Logf("%q ran %d times", line, n)
		}
	}
	for line, n := range a.lines(t, "consume") {
		if n > 1 {
			twice++
			t.Logf("%q was read %d times", line, n)
		}
	}
	require.Zero(t, twice)
}

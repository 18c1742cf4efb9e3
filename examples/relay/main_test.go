package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker"
)

// childEnv makes the test binary run as the program.
const childEnv = "RELAY_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// A run delivers all webhooks, even those of the endpoint that was down. A second run on the same
// database has nothing to do.
func TestRelay_Run(t *testing.T) {
	t.Parallel()
	c := newConfig(t, 90)
	args := append(flags(c), "-rate", "60", "-down", "3s")
	first := runMain(t, 0, args...)
	require.Contains(t, first, expected(90))
	require.Regexp(t, `blau  delivered +\d+  waiting +[1-9]\d*  post to .*: 503 Service Unavailable: maintenance`, first)
	require.Contains(t, runMain(t, 0, args...), expected(90))
	check(t, c)
}

// If the program is killed three times and restarted, no webhook is lost and their order is kept.
func TestRelay_Kill(t *testing.T) {
	t.Parallel()
	c := newConfig(t, 900)
	for _, orders := range []int64{100, 200, 300} {
		child := startChild(t, c, "-rate", "400", "-down", "1h") // the endpoint stays down, so the program does not exit on its own
		waitForOrders(t, c.db, orders)
		require.NoError(t, child.Process.Kill())
		require.Error(t, child.Wait(), "the child was done before it was killed")
	}
	last := startChild(t, c, "-rate", "0", "-down", "300ms")
	require.NoError(t, last.Wait())
	duplicates := regexp.MustCompile(`(?m) +\d+( +0)$`) // their number depends on the kills
	require.Contains(t, duplicates.ReplaceAllString(fmt.Sprint(last.Stdout), "           0$1"), expected(900))
	check(t, c)
}

// An interrupted run reports the waiting webhooks, and the next run continues.
func TestRelay_Interrupt(t *testing.T) {
	t.Parallel()
	c := newConfig(t, 300)
	ctx, interrupt := context.WithCancel(t.Context())
	c.rate, c.down = 60, time.Hour
	said := make(chan string)
	go func() {
		var w bytes.Buffer
		if err := serve(ctx, c, &w); err != nil {
			fmt.Fprint(&w, err)
		}
		said <- w.String()
	}()
	waitForOrders(t, c.db, 100) // takes a second and a half; the endpoint is down by then
	interrupt()
	require.Regexp(t, `Interrupted: [1-9]\d* of [1-3]\d\d webhooks wait`, <-said)
	require.Contains(t, runMain(t, 0, append(flags(c), "-rate", "0")...), expected(300))
	check(t, c)
}

// Invalid flags are rejected with exit code 2.
func TestRelay_Flags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-orders", "-1"}, {"-rate", "-1"}, {"-down", "-1s"}, {"-lease", "0"}, {"-nonsense"}} {
		require.Empty(t, runMain(t, 2, args...), "%v", args)
	}
}

// No two customers share a partition, because one of them could then hold up the other.
func TestRelay_Partitions(t *testing.T) {
	t.Parallel()
	s, err := open(t.Context(), newConfig(t, 0), io.Discard)
	require.NoError(t, err)
	defer s.close()
	taken := map[int]string{}
	for _, name := range names {
		p := s.hooks.Partition(name)
		require.Empty(t, taken[p], name)
		taken[p] = name
	}
}

// Each kind of mismatch is reported.
func TestRelay_WrongTable(t *testing.T) {
	t.Parallel()
	right := row{name: "acme", sent: 5, delivered: 3, waiting: 2, received: 4, inOrder: true}
	require.NoError(t, table{right}.err())
	for says, spoil := range map[string]func(r *row){
		"out of order":         func(r *row) { r.inOrder = false },
		"5 orders, but 4":      func(r *row) { r.waiting = 1 },
		"received 2 webhooks":  func(r *row) { r.received = 2 },
		"received 6 webhooks":  func(r *row) { r.received = 6 },
		"of 5 sent and 5 deli": func(r *row) { r.delivered, r.waiting = 5, 0 },
	} {
		wrong := right
		spoil(&wrong)
		require.ErrorContains(t, table{right, wrong}.err(), says)
	}
	c := &customer{numbers: []int64{1, 3, 2}}
	_, inOrder, _ := c.received()
	require.False(t, inOrder)
}

// An endpoint rejects webhooks that are unsigned, too large, too old or signed with another secret.
func TestRelay_Endpoint(t *testing.T) {
	t.Parallel()
	c, err := newCustomer(filepath.Join(t.TempDir(), "relay.db"), "acme")
	require.NoError(t, err)
	defer c.ledger.Close()
	h, err := listen([]*customer{c}, downtime{})
	require.NoError(t, err)
	defer h.Close()
	for body, status := range map[string]int{
		`{"customer":"acme","number":1}`: http.StatusUnauthorized,
		strings.Repeat("x", 70_000):      http.StatusRequestEntityTooLarge,
	} {
		resp, err := http.Post(h.url+"/acme", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode)
	}
	// This is the test vector from the specification.
	header := http.Header{}
	header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set("webhook-timestamp", "1614265330")
	header.Set("webhook-signature", "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	const secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", `{"test": 2432232314}`
	at := time.Unix(1614265330, 0)
	require.NoError(t, verify(secret, header, []byte(body), at))
	require.Error(t, verify(secret, header, []byte(body+" "), at))
	require.Error(t, verify(newSecret(), header, []byte(body), at))
	require.Error(t, verify(secret, header, []byte(body), at.Add(6*time.Minute)))
	n, _, _ := c.received()
	require.Zero(t, n)
}

// README.md shows the table of a run.
func TestRelay_Readme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Contains(t, strings.ReplaceAll(string(text), "\r\n", "\n"), expected(400))
}

// On a terminal, the display is redrawn in place, and long errors are cut to fit on a line.
func TestRelay_Display(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	d := &display{w: &w, terminal: true}
	all := []standing{{name: "acme", delivered: 3}, {name: "blau", delivered: 1, waiting: 2, lastError: strings.Repeat("ü", 500), next: time.Now().Add(time.Hour)}}
	d.show(all, false)
	d.show(all, false)
	got := regexp.MustCompile(`in [0-9.]+s`).ReplaceAllString(w.String(), "in …")
	want := "\r\x1b[Kacme  delivered    3  waiting    0\n\r\x1b[Kblau  delivered    1  waiting    2  " + strings.Repeat("ü", 69) + "…, next try in …\n"
	require.Equal(t, want+"\x1b[2A"+want, got)
}

// expected returns the table of a run that has delivered every webhook once.
func expected(orders int) string {
	var w strings.Builder
	var t table
	for i, name := range names {
		n := int64((orders + len(names) - 1 - i) / len(names))
		t = append(t, row{name: name, sent: n, delivered: n, received: n, inOrder: true})
	}
	t.print(&w)
	return w.String()
}

func newConfig(t *testing.T, orders int) config {
	return config{db: filepath.Join(t.TempDir(), "relay.db"), orders: orders, lease: time.Second, keep: true}
}

func flags(c config) []string {
	return []string{"-db", c.db, "-orders", fmt.Sprint(c.orders), "-lease", c.lease.String()}
}

// runMain calls run in this process and returns its stdout.
func runMain(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, code, run(t.Context(), args, &stdout, &stderr), "%s%s", &stdout, &stderr)
	return stdout.String()
}

// startChild runs the program as a child process.
func startChild(t *testing.T, c config, more ...string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0], append(flags(c), more...)...)
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stdout, child.Stderr = new(bytes.Buffer), t.Output()
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		if child.ProcessState == nil { // the test has failed before Wait
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	})
	return child
}

// waitForOrders waits until that many orders have been placed, by any process.
func waitForOrders(t *testing.T, path string, orders int64) {
	t.Helper()
	db, err := honker.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer db.Close()
	placed := func() (n int64) {
		if db.SQL().QueryRowContext(t.Context(), `SELECT count(*) FROM orders`).Scan(&n) != nil {
			return 0 // the child has not created the table yet
		}
		return n
	}
	require.Eventually(t, func() bool { return placed() >= orders }, time.Minute, 2*time.Millisecond)
}

// check checks a finished database that no process has open.
func check(t *testing.T, c config) {
	t.Helper()
	s, err := open(t.Context(), c, io.Discard)
	require.NoError(t, err)
	got, err := readTable(t.Context(), s)
	require.NoError(t, errors.Join(err, got.err(), s.db.Check(t.Context()), s.close()))
	require.Zero(t, got.waiting())
}

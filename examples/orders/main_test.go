package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/honker-go/honker"
)

// sample is the beginning of the input. It contains every kind of invalid order.
var sample = head(testdata, 600)

// childEnv makes the test binary run as the service, reading the sample.
const childEnv = "ORDERS_TEST_CHILD"

func TestMain(m *testing.M) {
	receiptOptions.Backoff = honker.Constant(0) // the pauses only help people to watch
	if os.Getenv(childEnv) != "" {
		testdata = sample
		main()
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := stopServer(); err != nil {
			fmt.Fprintln(os.Stderr, "orders:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// onEach runs a test on a file and on a PostgreSQL server, each with a configuration that reads the sample.
func onEach(t *testing.T, test func(t *testing.T, c config)) {
	for name, place := range map[string]func(t *testing.T, c *config){
		"file":     func(t *testing.T, c *config) { c.file = filepath.Join(t.TempDir(), "orders.db") },
		"postgres": func(t *testing.T, c *config) { c.dsn = newDatabase(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config{
				out:     filepath.Join(t.TempDir(), "receipts"),
				workers: 4,
				lease:   2 * time.Second,
				input:   sample,
			}
			place(t, &c)
			test(t, c)
		})
	}
}

// The numbers of valid and invalid orders in the input match README.md.
func TestOrders_Input(t *testing.T) {
	t.Parallel()
	m := newModel(testdata)
	bad := 0
	for _, n := range m.refused {
		bad += n
	}
	if len(m.accepted) != 3891 || bad != 109 || len(m.refused) != 5 {
		t.Errorf("%d good orders, %d bad: %v", len(m.accepted), bad, m.refused)
	}
}

// A run leaves a receipt or a dead letter for each valid order and counts the invalid orders by
// reason. A second run changes nothing.
func TestOrders_Run(t *testing.T) { onEach(t, testRun) }

func testRun(t *testing.T, c config) {
	want := newModel(sample)

	first := runService(t, c)
	want.check(t, c)
	if got := first.intake.tally; got.stored != len(want.accepted) || got.known != 0 {
		t.Errorf("the first run stored %d and knew %d of %d orders", got.stored, got.known, len(want.accepted))
	}
	if got := first.intake.tally.refused; !maps.Equal(got, want.refused) {
		t.Errorf("refused %v, want %v", got, want.refused)
	}
	if got := first.meter.read(); got.retries == 0 || got.waits == 0 {
		t.Errorf("no retry or no wait was measured: %+v", got)
	}

	before := modTimes(t, c.out)
	second := runService(t, c)
	want.check(t, c)
	if got := second.intake.tally; got.stored != 0 || got.known != len(want.accepted) {
		t.Errorf("the second run stored %d and knew %d of %d orders", got.stored, got.known, len(want.accepted))
	}
	if !maps.Equal(before, modTimes(t, c.out)) {
		t.Error("the second run wrote receipts again")
	}
}

// An order that a constraint rejects is rolled back together with its job.
func TestOrders_RefusedOrder(t *testing.T) { onEach(t, testRefusedOrder) }

func testRefusedOrder(t *testing.T, c config) {
	s := openService(t, c)
	good := `{"id":"ord-000001","currency":"EUR","items":[{"sku":"A","qty":2,"price_cents":5}],"total_cents":10}`
	if err := s.intake.accept(t.Context(), 1, good); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		line   int
		change []string
		want   error
	}{
		{1, nil, errKnown},
		{2, nil, duplicateID},
		{3, []string{"001", "002", "EUR", "DOGE"}, refusal("unknown currency")},
		{4, []string{"001", "002", "2,", "-2,", "10}", "-10}"}, refusal("quantity not positive")},
		{5, []string{"001", "002", "10}", "11}"}, wrongTotal},
		{6, []string{"ord-000001", "../ord-000001"}, malformed},
	} {
		line := strings.NewReplacer(tc.change...).Replace(good)
		if err := s.intake.accept(t.Context(), tc.line, line); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", line, err, tc.want)
		}
	}
	if got, err := readBooks(t.Context(), s.db.SQL(), s.kind); err != nil || got != (books{orders: 1, waiting: 1}) {
		t.Errorf("%+v, %v: more than the good order is left", got, err)
	}
}

// An interrupted run finishes its current work, and the next run does the rest.
func TestOrders_Interrupt(t *testing.T) { onEach(t, testInterrupt) }

func testInterrupt(t *testing.T, c config) {
	c.rate = 60 // ten seconds in all; the test interrupts it after two

	ctx, interrupt := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		waitForReceipts(t, c.out, 100)
		interrupt()
	}()
	s := openService(t, c)
	if err := s.serve(ctx); err != nil {
		t.Fatal(err)
	}
	<-stopped
	b, err := readBooks(t.Context(), s.db.SQL(), s.kind)
	if err != nil || b.running != 0 || b.orders == len(newModel(sample).accepted) {
		t.Errorf("%+v, %v: not drained or not interrupted", b, err)
	}

	runService(t, c)
	newModel(sample).check(t, c)
}

// The dashboard shows the service while it runs and after it has finished. It rejects changes and
// stops with ctx.
func TestOrders_Dashboard(t *testing.T) { onEach(t, testDashboard) }

func testDashboard(t *testing.T, c config) {
	c.ui = ":0"
	ctx, interrupt := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, c, in)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	lineWith := func(text string) string {
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return lines.Text()
			}
		}
		t.Fatalf("no line with %q: %v", text, lines.Err())
		return ""
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	at := strings.TrimPrefix(lineWith("dashboard: "), "dashboard: ")
	if !strings.HasPrefix(at, "http://127.0.0.1:") {
		t.Errorf("%s can be reached from elsewhere", at)
	}
	ask(t, client, at, nil, http.StatusOK)
	lineWith("The books balance")
	lineWith("The dashboard stays")
	ask(t, client, at+"dead", nil, http.StatusOK)
	ask(t, client, at+"pause", url.Values{"queue": {receiptQueue}}, http.StatusForbidden)
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	newModel(sample).check(t, c)
}

// ask sends a GET request, or a POST request if form is not nil, and checks the status.
func ask(t *testing.T, client *http.Client, to string, form url.Values, want int) {
	t.Helper()
	send := func() (*http.Response, error) { return client.Get(to) }
	if form != nil {
		send = func() (*http.Response, error) { return client.PostForm(to, form) }
	}
	answer, err := send()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != want {
		t.Errorf("%s: %s", to, answer.Status)
	}
}

func openService(t *testing.T, c config) *service {
	t.Helper()
	s, err := open(t.Context(), c, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func runService(t *testing.T, c config) *service {
	t.Helper()
	s := openService(t, c)
	if err := s.serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// model is the expected result of an input, computed without a database.
type model struct {
	accepted map[string]Order
	refused  map[refusal]int
}

func newModel(input string) model {
	m := model{make(map[string]Order), make(map[refusal]int)}
	for line := range strings.Lines(input) {
		o, err := parseOrder(line)
		switch {
		case err != nil:
			m.refused[err.(refusal)]++
		case !slices.Contains([]string{"EUR", "GBP", "USD"}, o.Currency):
			m.refused["unknown currency"]++
		case slices.ContainsFunc(o.Items, func(i Item) bool { return i.Qty <= 0 }):
			m.refused["quantity not positive"]++
		case m.accepted[o.ID].ID != "":
			m.refused[duplicateID]++
		default:
			m.accepted[o.ID] = o
		}
	}
	return m
}

// check compares the result of a finished run with the model: the text of each receipt, the number
// of receipts and the dead letters.
func (m model) check(t *testing.T, c config) {
	t.Helper()
	dead := m.checkDatabase(t, c)
	files, err := os.ReadDir(c.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		o, ok := m.accepted[strings.TrimSuffix(file.Name(), receiptSuffix)]
		got, err := os.ReadFile(filepath.Join(c.out, file.Name()))
		if !ok || err != nil || string(got) != string(render(o)) {
			t.Errorf("%s is not the receipt of an order (%v)", file.Name(), err)
		}
	}
	if len(files)+dead != len(m.accepted) {
		t.Errorf("%d receipts and %d dead letters for %d orders", len(files), dead, len(m.accepted))
	}
}

// checkDatabase checks the database and returns the number of orders with a dead letter.
func (m model) checkDatabase(t *testing.T, c config) int {
	t.Helper()
	ctx := context.Background()
	kind := c.database()
	db, err := kind.open(ctx, c, honker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Check(ctx); err != nil {
		t.Error(err)
	}
	want := books{orders: len(m.accepted)}
	for id := range m.accepted {
		if mishap(id, receiptOptions.MaxAttempts) != nil {
			want.dead++
		}
	}
	if got, err := readBooks(ctx, db.SQL(), kind); err != nil || got != want {
		t.Errorf("books %+v, %v, want %+v", got, err, want)
	}
	return want.dead
}

func head(text string, lines int) string {
	all := slices.Collect(strings.Lines(text))
	return strings.Join(all[:lines], "")
}

func modTimes(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	times := make(map[string]time.Time)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			t.Fatal(err)
		}
		times[file.Name()] = info.ModTime()
	}
	return times
}

// waitForReceipts waits until there are at least n receipts.
func waitForReceipts(t *testing.T, dir string, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(dir, "*"+receiptSuffix))
		if len(files) >= n {
			return
		}
	}
	t.Errorf("there never were %d receipts", n)
}

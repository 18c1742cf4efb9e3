package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childEnv makes the test binary run as the service.
const childEnv = "SERVICE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// The service sends a welcome mail to each new user and a single digest a day, serves its metrics and the dashboard,
// and stops cleanly on SIGTERM.
func TestService_Day(t *testing.T) {
	t.Parallel()
	provider, file := newProvider(t), filepath.Join(t.TempDir(), "service.db")
	p := start(t, file, provider.URL)
	const users = 30
	for i := range users {
		require.Equal(t, http.StatusCreated, p.signup(fmt.Sprintf("user-%d@example.com", i)))
	}
	require.Equal(t, http.StatusConflict, p.signup("user-0@example.com"))
	db := honkertest.OpenFile(t, file, nil)
	waitUntilDone(t, db)
	require.Len(t, provider.mails(t), users)

	// The schedule fires twice at once, and again after the digests are sent.
	triggerNightly(t, db, 2)
	waitUntilDone(t, db)
	triggerNightly(t, db, 1)
	waitUntilDone(t, db)
	mails, days := provider.mails(t), map[string]int{}
	for m := range mails {
		days[m.subject]++
	}
	for subject, n := range days {
		require.Equal(t, users, n, subject)
	}
	require.GreaterOrEqual(t, len(days), 2, "welcome mails, and digests of today (or of two days if it has just been midnight)")
	require.Zero(t, provider.repeated, "no process was killed")

	require.Contains(t, p.get(t, "", "/metrics", http.StatusOK), `honker_jobs_enqueued_total{queue="digests"`)
	require.Contains(t, p.get(t, password, "/admin/schedules", http.StatusOK), "nightly")
	p.get(t, "guess", "/admin/", http.StatusUnauthorized)
	p.stop(t)
}

// Nothing is lost if the service is stopped and killed while users sign up. Each stored user gets a welcome mail.
func TestService_Restart(t *testing.T) {
	t.Parallel()
	provider, file := newProvider(t), filepath.Join(t.TempDir(), "service.db")
	var created []string
	for round, end := range []func(*process, *testing.T){(*process).kill, (*process).stop, (*process).kill, (*process).stop} {
		p := start(t, file, provider.URL)
		done := make(chan []string)
		go func() { done <- p.signupUntilDown(round) }()
		enough := len(provider.mails(t)) + 10
		waitFor(t, "mails", func() bool { return len(provider.mails(t)) >= enough })
		end(p, t)
		created = append(created, <-done...)
	}
	require.NotEmpty(t, created)

	db := honkertest.OpenFile(t, file, nil)
	_, err := db.SQL().ExecContext(t.Context(), `UPDATE _honker_live SET claim_expires_at = 1 WHERE state = 'processing'`) // the leases of the killed
	require.NoError(t, err)
	p := start(t, file, provider.URL)
	waitUntilDone(t, db)
	p.stop(t)
	mails := provider.mails(t)
	for _, email := range created {
		require.Contains(t, mails, mail{email, "Welcome"})
	}
	var users int
	require.NoError(t, db.SQL().QueryRowContext(t.Context(), `SELECT count(*) FROM users`).Scan(&users))
	require.Len(t, mails, users)
}

// A failing provider delays a mail, and a rejected address makes it a dead letter.
func TestService_Send(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Cleanup(provider.Close)
	s, err := newService(t.Context(), honkertest.Open(t, nil), provider.URL)
	require.NoError(t, err)
	for answer, outcome := range map[int]honker.Outcome{
		http.StatusOK:                  honker.OutcomeAcked,
		http.StatusServiceUnavailable:  honker.OutcomeRetried,
		http.StatusUnprocessableEntity: honker.OutcomeDied,
	} {
		status = answer
		got := honkertest.Perform(t, s.mails, Mail{To: "ada@example.com"}, s.send)
		require.Equal(t, outcome, got.Outcome, answer)
	}
}

// The program is short enough to be read at once.
func TestService_Length(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	lines := 0
	for _, file := range files {
		if file == "main_test.go" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		lines += bytes.Count(text, []byte("\n"))
	}
	require.Less(t, lines, 200)
	require.Greater(t, lines, 100, "the walk has missed the program")
}

// mail is a mail as the provider knows it.
type mail struct{ to, subject string }

// provider is a mail provider. Like a real provider, it ignores a request whose key it knows.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	sent     map[string]mail // by idempotency key
	repeated int
}

func newProvider(t *testing.T) *provider {
	p := &provider{sent: make(map[string]mail)}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if _, known := p.sent[key]; known {
		p.repeated++
	}
	p.sent[key] = mail{r.FormValue("to"), r.FormValue("subject")}
}

// mails returns the mails that were sent. No mail may have been sent under two keys.
func (p *provider) mails(t *testing.T) map[mail]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	mails := make(map[mail]bool, len(p.sent))
	for _, m := range p.sent {
		require.False(t, mails[m], "%s was sent twice", m)
		mails[m] = true
	}
	return mails
}

// password is the password of the dashboard.
const password = "secret"

// process is a running service.
type process struct {
	url    string
	client http.Client
	cmd    *exec.Cmd
	ended  chan error
}

// start starts the service and waits until it answers.
func start(t *testing.T, file, provider string) *process {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no process can be interrupted")
	}
	for range 3 {
		if p := tryStart(t, file, provider); p.answers(t) {
			return p
		}
	}
	require.Fail(t, "the service does not start")
	return nil
}

// tryStart starts the service on a free port. Another process may take the port before the service does.
func tryStart(t *testing.T, file, provider string) *process {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	p := &process{url: "http://" + addr, client: http.Client{Transport: new(http.Transport)}, ended: make(chan error, 1)}
	p.cmd = exec.Command(os.Args[0], "-addr", addr, "-db", file, "-provider", provider)
	p.cmd.Env = append(os.Environ(), childEnv+"=1", "ADMIN_PASSWORD="+password)
	p.cmd.Stderr = t.Output()
	require.NoError(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		if p.ended != nil { // the test has failed
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	})
	return p
}

// answers waits until the service answers, and reports false if it ends before.
func (p *process) answers(t *testing.T) (ok bool) {
	waitFor(t, "the server", func() bool {
		answer, err := p.client.Get(p.url + "/metrics")
		ok = err == nil && answer.Body.Close() == nil
		return ok || len(p.ended) > 0
	})
	return ok
}

// stop interrupts the service, which must succeed.
func (p *process) stop(t *testing.T) {
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-p.ended)
	p.ended = nil
}

func (p *process) kill(t *testing.T) {
	require.NoError(t, p.cmd.Process.Kill())
	require.Error(t, <-p.ended)
	p.ended = nil
}

// signup returns the status of the response, and 0 if there is none.
func (p *process) signup(email string) int {
	answer, err := p.client.PostForm(p.url+"/signup", url.Values{"email": {email}})
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// signupUntilDown signs users up until the service is down, and returns those who got the answer that they are stored.
func (p *process) signupUntilDown(round int) (created []string) {
	for i := 0; ; i++ {
		email := fmt.Sprintf("user-%d-%d@example.com", round, i)
		switch p.signup(email) {
		case http.StatusCreated:
			created = append(created, email)
		case 0:
			return created
		}
	}
}

// get returns the body of a page.
func (p *process) get(t *testing.T, password, path string, status int) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, nil)
	require.NoError(t, err)
	req.SetBasicAuth("admin", password)
	answer, err := p.client.Do(req)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, status, answer.StatusCode, "%s", body)
	return string(body)
}

// triggerNightly fires the schedule n times in a transaction.
func triggerNightly(t *testing.T, db *honker.DB, n int) {
	require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for range n {
			if _, err := db.Scheduler().TriggerTx(ctx, tx, "nightly"); err != nil {
				return err
			}
		}
		return nil
	}))
}

// waitUntilDone waits until all jobs are acked. A queue enqueues only into the queues after it.
func waitUntilDone(t *testing.T, db *honker.DB) {
	for _, name := range []string{"nightly", "digests", "mails"} {
		queue := honker.NewQueue[any](db, name, nil)
		waitFor(t, name, func() bool {
			stats, err := queue.Stats(t.Context())
			require.NoError(t, err)
			require.Zero(t, stats.Dead.N, name)
			return stats.Ready.N+stats.Scheduled.N+stats.Running.N+stats.Lapsed.N+stats.Held.N == 0
		})
	}
}

// waitFor waits for something that takes some milliseconds.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "waited for %s", what)
	}
}

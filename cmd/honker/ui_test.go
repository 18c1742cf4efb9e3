package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// visitor is a browser that visits a dashboard served by the command.
type visitor struct {
	t      *testing.T
	at     *url.URL // the printed URL
	client *http.Client
	host   string
	origin string
	basic  *url.Userinfo
}

// serveUI starts honker ui. At the end of the test it is interrupted, and must end without an error.
func serveUI(t *testing.T, dir string, flags ...string) *visitor {
	t.Helper()
	return serveUIWith(t, dir, nil, flags...)
}

func serveUIWith(t *testing.T, dir string, env []string, flags ...string) *visitor {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no process can be interrupted")
	}
	cmd := command(t, dir, append([]string{"ui", "-f", "app.db"}, flags...)...)
	cmd.Env = append(cmd.Env, env...)
	return serveBy(t, cmd)
}

// serveBy starts a command of honker ui.
func serveBy(t *testing.T, cmd *exec.Cmd) *visitor {
	t.Helper()
	cmd.Stderr = t.Output()
	cmd.Cancel = func() error { return errors.Join(os.ErrProcessDone, cmd.Process.Signal(syscall.SIGINT)) } // os.ErrProcessDone makes Wait return the exit code
	cmd.WaitDelay = deadline
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	at, err := url.Parse(strings.TrimSpace(line))
	require.NoError(t, err)
	v := newVisitor(t, at, &http.Transport{})
	t.Cleanup(func() {
		require.Zero(t, codeOf(t, cmd.Wait())) // after the end of the test's context
		v.client.CloseIdleConnections()
	})
	return v
}

func newVisitor(t *testing.T, at *url.URL, transport http.RoundTripper) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &visitor{t: t, at: at, client: &http.Client{Jar: jar, Transport: transport}}
}

// stranger returns another browser, without the visitor's cookie.
func (v *visitor) stranger() *visitor {
	return newVisitor(v.t, v.at, v.client.Transport)
}

// ask sends a GET request, or a POST request if form is not nil, and returns the status and the body.
func (v *visitor) ask(ref string, form url.Values) (int, string) {
	v.t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	to, err := v.at.Parse(ref)
	require.NoError(v.t, err)
	r, err := http.NewRequestWithContext(v.t.Context(), method, to.String(), body)
	require.NoError(v.t, err)
	r.Host = v.host
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if v.origin != "" {
		r.Header.Set("Origin", v.origin)
	}
	if v.basic != nil {
		password, _ := v.basic.Password()
		r.SetBasicAuth(v.basic.Username(), password)
	}
	answer, err := v.client.Do(r)
	require.NoError(v.t, err)
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	require.NoError(v.t, err)
	return answer.StatusCode, string(page)
}

func (v *visitor) sees(status int, ref string) string {
	v.t.Helper()
	got, page := v.ask(ref, nil)
	require.Equal(v.t, status, got, page)
	return page
}

// The printed URL opens the dashboard and sets a cookie that is hidden from scripts and other sites. Without the
// cookie or under another host name, as a malicious page might use, access is denied.
func TestUI_Token(t *testing.T) {
	t.Parallel()
	dir, _, _ := newFile(t)
	v := serveUI(t, dir)
	require.Equal(t, "127.0.0.1", v.at.Hostname())
	require.Contains(t, v.sees(http.StatusForbidden, "/"), "the URL printed by honker ui")
	v.sees(http.StatusForbidden, "/?token=")
	v.sees(http.StatusForbidden, "/?token="+strings.ToLower(v.at.Query().Get("token")))
	v.sees(http.StatusForbidden, "/job?id=1")

	once := *v.client
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := once.Get(v.at.String())
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusSeeOther, answer.StatusCode)
	require.Equal(t, "/", answer.Header.Get("Location"))
	require.Len(t, answer.Cookies(), 1)
	cookie := answer.Cookies()[0]
	require.Equal(t, "honker-ui-"+v.at.Port(), cookie.Name)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	require.True(t, cookie.HttpOnly)
	require.Contains(t, v.sees(http.StatusOK, "/"), "<h1")
	require.Contains(t, v.sees(http.StatusOK, v.at.String()), "<h1", "the URL is good for more than once")

	v.host = "evil.example:" + v.at.Port()
	require.Contains(t, v.sees(http.StatusForbidden, v.at.String()), `This is not "evil.example:`)
	for _, host := range []string{"localhost:9000", "127.0.0.1", "[::1]:80", "[::1]"} {
		v.host = host
		require.Contains(t, v.sees(http.StatusOK, v.at.String()), "<h1", host)
	}
	v.stranger().sees(http.StatusForbidden, "/")
}

// Changes need --write, and are recorded with the user who started the command.
func TestUI_Write(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	_, err := q.Enqueue(t.Context(), 1)
	require.NoError(t, err)
	paused := func() []honker.Pause {
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		if stats.Pause == nil {
			return nil
		}
		return []honker.Pause{*stats.Pause}
	}
	pause := url.Values{"queue": {q.Name()}}

	looks := serveUI(t, dir)
	require.Contains(t, looks.sees(http.StatusOK, looks.at.String()), q.Name())
	status, page := looks.ask("/pause", pause)
	require.Equal(t, http.StatusForbidden, status, page)
	require.Contains(t, page, "this dashboard is read-only", "whether or not the file can be written")
	require.Empty(t, paused())

	writes := serveUI(t, dir, "--write")
	status, page = writes.ask("/pause", pause)
	require.Equal(t, http.StatusForbidden, status, page)
	require.Empty(t, paused(), "without the token")
	writes.sees(http.StatusOK, writes.at.String())
	status, page = writes.ask("/pause", pause)
	require.Equal(t, http.StatusOK, status, page)
	require.Len(t, paused(), 1)
	require.Equal(t, actor(), paused()[0].By)
}

// Behind a proxy that rewrites the Host header, changes come from another origin, which must be given by --origin.
func TestUI_Origin(t *testing.T) {
	t.Parallel()
	dir, _, q := newFile(t)
	pause := url.Values{"queue": {q.Name()}}
	v := serveUI(t, dir, "--write", "--origin", "https://ops.example.com", "--origin", "http://ops.local:8080")
	v.sees(http.StatusOK, v.at.String())
	for origin, want := range map[string]int{
		"https://ops.example.com": http.StatusOK, "http://ops.local:8080": http.StatusOK,
		"http://ops.example.com": http.StatusForbidden, "https://evil.example": http.StatusForbidden,
	} {
		v.origin = origin
		status, page := v.ask("/pause", pause)
		require.Equal(t, want, status, "%s: %s", origin, page)
	}
}

// The stream of an open page ends without an error, and doesn't delay the command's exit.
func TestUI_InterruptWithOpenPage(t *testing.T) {
	t.Parallel()
	var stream io.ReadCloser
	t.Cleanup(func() { // runs after the cleanup of serveUI
		if stream == nil {
			return // the test has failed already
		}
		_, err := io.Copy(io.Discard, stream)
		require.NoError(t, err)
		require.NoError(t, stream.Close())
	})
	dir, _, _ := newFile(t)
	v := serveUI(t, dir)
	v.sees(http.StatusOK, v.at.String())
	to, err := v.at.Parse("/events")
	require.NoError(t, err)
	answer, err := v.client.Get(to.String())
	require.NoError(t, err)
	stream = answer.Body
	require.Equal(t, http.StatusOK, answer.StatusCode)
	_, err = stream.Read(make([]byte, 1))
	require.NoError(t, err)
}

// The URL passed to the browser is valid only once, because it is visible in a process's arguments.
func TestUI_Open(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the desktop has a command of its own")
	}
	dir, _, _ := newFile(t)
	bin := t.TempDir()
	pipe := filepath.Join(bin, "pipe")
	require.NoError(t, exec.Command("mkfifo", pipe).Run())
	require.NoError(t, os.WriteFile(filepath.Join(bin, "xdg-open"), []byte("#!/bin/sh\necho \"$1\" > '"+pipe+"'\n"), 0o700))
	v := serveUIWith(t, dir, []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}, "--open")
	given, err := os.ReadFile(pipe)
	require.NoError(t, err)
	opened := strings.TrimSpace(string(given))
	require.NotEqual(t, v.at.String(), opened)
	v.sees(http.StatusOK, opened)
	v.sees(http.StatusOK, "/")
	v.stranger().sees(http.StatusForbidden, opened)
}

// An address that others can reach is rejected before the command listens.
func TestUI_Flags(t *testing.T) {
	t.Parallel()
	dir, _, _ := newFile(t)
	for _, flags := range []string{
		"--listen :0", "--listen 0.0.0.0:0", "--listen [::]:0", "--listen nonsense", "--listen :0 --basic ann", "--basic :x", "--basic ann:", "--basic ann:secret", "-o name", "--origin ops.example.com",
		"--origin https://ops.example.com/honker",
	} {
		got := ran(t, dir, append([]string{"ui", "-f", "app.db"}, strings.Fields(flags)...)...)
		require.Equal(t, codeUsage, got.code, "%s: %s", flags, got.err)
		require.Empty(t, got.out)
	}
	require.Equal(t, codeUsage, ran(t, dir, "ui", "-f", "no.db").code)
}

package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/ui"
)

// uiFlags holds the flags for honker ui.
type uiFlags struct {
	listen  string
	write   bool
	open    bool
	basic   []string
	proxy   bool
	origins []string
}

const tryUI = "honker ui --listen 127.0.0.1:0"

func (a *app) ui() *cobra.Command {
	var f uiFlags
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the dashboard",
		Long: `ui prints the URL of a dashboard for the file, and serves it until it is interrupted. The URL contains a token, which the
browser keeps as a cookie. Requests without the token are rejected. The dashboard is read-only unless --write is given.

By default ui listens only on this machine, and rejects requests that name another host. An address that other machines can
reach needs --basic, which asks for a name and a password, or --i-have-a-proxy, which leaves access control to a proxy. Neither
encrypts anything.

--basic, and each line of $HONKER_UI_BASIC, is a name and the bcrypt hash of its password, as printed by "htpasswd -nB USER".`,
		Example: `  honker ui -f app.db --open
  HONKER_UI_BASIC="$(htpasswd -nB ops)" honker ui -f app.db --listen :8080`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "serve the dashboard on this `address`; port 0 selects a free port")
	flags.BoolVar(&f.write, "write", false, "allow changes to the file")
	flags.BoolVar(&f.open, "open", false, "open the dashboard in the browser")
	flags.StringArrayVar(&f.basic, "basic", nil,
		"ask for a name and password instead of the token: `user:hash`, hashed by bcrypt; can be repeated; also from $"+accountsVariable)
	flags.BoolVar(&f.proxy, "i-have-a-proxy", false, "require no token and allow any host: a proxy controls access")
	flags.StringArrayVar(&f.origins, "origin", nil,
		"allow changes from this `origin`, such as https://ops.example.com, if a proxy rewrites the Host; can be repeated")
	for _, name := range []string{"listen", "basic", "origin"} {
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if cmd.Flags().Changed("output") {
			return usage("honker status -o json", "ui is for browsers: -o cannot be used")
		}
		return a.openUI(ctx, f)
	})
}

// openUI validates the flags before it touches the file or the network.
func (a *app) openUI(ctx context.Context, f uiFlags) error {
	address, err := net.ResolveTCPAddr("tcp", f.listen)
	if err != nil {
		return usage(tryUI, "--listen: %w", err)
	}
	accounts, err := a.accounts(f.basic)
	if err != nil {
		return err
	}
	if err := checkOrigins(f.origins); err != nil {
		return err
	}
	local := address.IP.IsLoopback()
	if !local && accounts == nil && !f.proxy {
		return usage(tryUI, "--listen %s can be reached from other machines, which requires --basic or --i-have-a-proxy", f.listen)
	}
	opts := &ui.Options{Authorize: ui.AllowAll, ReadOnly: !f.write, Origins: f.origins, Logger: a.logger()}
	d := &door{local: local && !f.proxy, accounts: accounts}
	switch {
	case accounts != nil:
		opts.By = func(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }
	case !f.proxy:
		d.secret, d.ticket = rand.Text(), rand.Text()
		opts.By = func(*http.Request) string { return a.actor }
	}
	use := a.watch
	if f.write {
		use = func(ctx context.Context, do func(*honker.DB) error) error { return a.serve(ctx, nil, do) }
	}
	return use(ctx, func(db *honker.DB) error {
		pages := ui.New(db, opts)
		defer pages.Close()
		d.pages = pages
		return a.serveUI(ctx, d, address, f.open)
	})
}

// checkOrigins rejects origins that the dashboard would silently ignore.
func checkOrigins(origins []string) error {
	for _, origin := range origins {
		if err := new(http.CrossOriginProtection).AddTrustedOrigin(origin); err != nil {
			return usage(tryUI+" --write --origin https://ops.example.com", "--origin: %w", err)
		}
	}
	return nil
}

// serveUI serves until ctx ends.
func (a *app) serveUI(ctx context.Context, d *door, address *net.TCPAddr, open bool) error {
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return usage(tryUI, "%w", err)
	}
	d.cookie = fmt.Sprint("honker-ui-", listener.Addr().(*net.TCPAddr).Port)
	server := newServer(d, slog.NewLogLogger(a.logger().Handler(), slog.LevelWarn))
	server.RegisterOnShutdown(d.pages.Close)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	err = a.announce(d, "http://"+listener.Addr().String()+"/", open)
	if err == nil {
		select {
		case err = <-ended:
			return err
		case <-ctx.Done():
		}
	}
	shutDown(server)
	<-ended
	return err
}

// announce prints the URL, and opens it in a browser if requested.
func (a *app) announce(d *door, url string, open bool) error {
	fmt.Fprintln(a.out, d.withToken(url, d.secret))
	if err := a.out.Flush(); err != nil {
		return err
	}
	if !open {
		return nil
	}
	if err := browse(d.withToken(url, d.ticket)); err != nil {
		a.note("cannot open a browser: %v", err)
	}
	return nil
}

// lastAnswers is how long shutdown waits for running requests. Without a limit, idle browser connections could delay
// it.
const lastAnswers = time.Second

func shutDown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// browse opens a URL with the desktop's default browser.
func browse(url string) error {
	words := []string{"xdg-open", url}
	switch runtime.GOOS {
	case "darwin":
		words[0] = "open"
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	}
	cmd := exec.Command(words[0], words[1:]...)
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release() // don't wait for it: it may be the browser itself
}

// door decides which requests reach the pages.
type door struct {
	pages *ui.Handler
	// local accepts only hosts that name this machine. A page on another site can make its own name resolve to this
	// address, so that the browser treats both as the same origin. Only the Host header tells them apart.
	local bool
	// accounts can sign in; nil if no login is needed.
	accounts *accounts
	// secret is the token in the printed URL and the value of the cookie; "" if none is needed.
	secret string
	// ticket is the token in the URL passed to the browser. Other users of the machine can see that URL in the
	// process list, so the ticket is valid only once.
	ticket string
	used   atomic.Bool
	// cookie is the name of the cookie. It contains the port, because browsers share a host's cookies among its
	// ports.
	cookie string
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := ""
	if d.secret != "" {
		token = r.URL.Query().Get("token")
	}
	if d.local && !isLocal(r.Host) {
		refuse(w, fmt.Sprintf("This is not %q. Behind a proxy, honker ui needs --i-have-a-proxy.", r.Host))
		return
	}
	if d.accounts != nil {
		if err := d.accounts.check(r); err != nil {
			refuseLogin(w, err)
			return
		}
	}
	switch {
	case !d.known(r) && !d.accepts(token):
		refuse(w, "This browser has no token. Open the URL printed by honker ui.")
	case token != "":
		d.let(w, r)
	default:
		d.pages.ServeHTTP(w, r)
	}
}

// known reports whether the request has the cookie.
func (d *door) known(r *http.Request) bool {
	if d.secret == "" {
		return true
	}
	cookie, err := r.Cookie(d.cookie)
	return err == nil && same(cookie.Value, d.secret)
}

func (d *door) accepts(token string) bool {
	return same(token, d.secret) || same(token, d.ticket) && !d.used.Swap(true)
}

// let sets the cookie and redirects to a URL without the token, which the user can safely share.
func (d *door) let(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (d *door) withToken(url, token string) string {
	if d.secret == "" {
		return url
	}
	return url + "?token=" + token
}

func refuse(w http.ResponseWriter, text string) {
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, text, http.StatusForbidden)
}

func same(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// isLocal reports whether a Host header names this machine. Any port is accepted, because an SSH tunnel uses its own
// port.
func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

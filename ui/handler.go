package ui

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	runflow "github.com/honker-go/honker/flow"
)

// Options configures a Handler. The zero value of a field selects its default.
type Options struct {
	// Authorize decides whether a request is allowed. It is called for each request and for each verb that a
	// page may offer, so it should be fast. It must return nil to allow a, or ErrLogin to make the browser ask
	// for a password. The text of any other error is shown to the user. If Authorize is nil, all requests are
	// denied with a page that explains how to set it.
	Authorize func(r *http.Request, a Access) error
	ReadOnly  bool // deny and do not offer any changes, regardless of Authorize

	// By returns the operator's name, which is stored in audit entries and pauses. The default is
	// "dashboard".
	By func(r *http.Request) string
	// Redact returns a payload to show instead of the given payload, or nil to hide it. If Redact is set, jobs
	// cannot be exported or searched by payload, because that would reveal hidden data.
	Redact func(queue string, payload json.RawMessage) json.RawMessage
	// Origins lists additional trusted origins, such as "https://ops.example.com". They are needed behind a
	// proxy that rewrites the Host header. When a request is denied for this reason, the error page shows the
	// missing origin.
	Origins []string
	Enqueue bool // allow operators to enqueue jobs

	Title string // environment name, such as "production"; shown on each page and in its title
	Color string // SVG color of the title bar, such as "#c00" or "orange"
	// Links returns additional links to show on a job's page, for example to its trace or order.
	Links func(*honker.JobInfo) []Link

	DB     map[string]*honker.DB // additional files, keyed by display name
	Logger *slog.Logger          // logs changes and failures; default slog.Default()
}

// Link is a link on a job's page.
type Link struct {
	Text string
	URL  string // must be http, https or mailto; other URLs are shown as plain text
}

// Handler is an http.Handler that serves the dashboard. It can be mounted under any prefix, with or without
// http.StripPrefix, because its pages use only relative links.
type Handler struct {
	opts   Options
	routes map[string]route
	files  map[string]*file
	names  []string // file names; the file passed to New comes first
	cross  *http.CrossOriginProtection
	mu     sync.Mutex      // synchronizes Close and spawn
	ended  context.Context // canceled by Close
	end    context.CancelFunc
	// running tracks the goroutines that follow, check or vacuum a file, because they outlive requests.
	running sync.WaitGroup
}

// file is a file shown by a Handler.
type file struct {
	name    string
	db      *honker.DB
	viewers viewers
	check   task
	vacuum  task
	badges  badges
	dead    deadCounter
	sizes   sizeCache
}

// New returns a dashboard for db. A nil opts selects the defaults, which deny all requests. New does not
// access the database. If db is nil, the handler responds to every request with an error. Invalid origins are
// logged and ignored.
//
//	mux.Handle("/honker/", ui.New(db, &ui.Options{Authorize: ui.Basic("ops", os.Getenv("OPS_PASSWORD"))}))
func New(db *honker.DB, opts *Options) *Handler {
	h := &Handler{files: map[string]*file{}, routes: map[string]route{}, cross: http.NewCrossOriginProtection()}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.Logger == nil {
		h.opts.Logger = slog.Default()
	}
	h.ended, h.end = context.WithCancel(context.Background())
	h.addFile("", db)
	for _, name := range slices.Sorted(maps.Keys(h.opts.DB)) {
		h.addFile(name, h.opts.DB[name])
	}
	for _, rt := range routes() {
		h.routes[rt.path] = rt
	}
	for _, origin := range h.opts.Origins {
		if err := h.cross.AddTrustedOrigin(origin); err != nil {
			h.opts.Logger.Error("honker ui: an invalid origin in Options.Origins is ignored", "origin", origin, "error", err)
		}
	}
	return h
}

func (h *Handler) addFile(name string, db *honker.DB) {
	h.files[name] = &file{name: name, db: db}
	if !slices.Contains(h.names, name) {
		h.names = append(h.names, name)
	}
}

// Close ends the event streams of open pages and cancels a running check. It blocks until they have ended. After
// Close, the handler still serves pages but without live updates. http.Server.Shutdown waits for open streams,
// so register Close with the server:
//
//	srv.RegisterOnShutdown(h.Close)
func (h *Handler) Close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.running.Wait()
}

// spawn runs f in a goroutine that Close waits for. After Close it does not run f and returns false.
func (h *Handler) spawn(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended.Err() != nil {
		return false
	}
	h.running.Go(f)
	return true
}

// call is the state of a request.
type call struct {
	h        *Handler
	file     *file
	db       *honker.DB
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context // request context with the operator's name and address
	params   *params
	access   Access
	allowed  map[[2]string]bool
	began    time.Time
	now      time.Time // by the clock of the file
	fragment bool      // the page's script requests only the content of the main element
}

// serve writes the response to an authorized call.
type serve func() error

// route describes a page or a verb.
type route struct {
	path  string // last element of the URL path
	verb  string // Access.Verb
	post  bool   // requires POST; otherwise GET or HEAD
	write bool
	// parse reads all parameters, fills in the call's Access, and returns a function that serves the call.
	// parse is called before the call is authorized, so it must not change anything.
	parse func(*call) serve
}

// routes returns all pages and verbs. Any other path, except for assets, results in a 404.
func routes() []route {
	page := func(path string, parse func(*call) serve) route { return route{path: path, verb: "look", parse: parse} }
	jobs := func(path string) route {
		return route{path: path, verb: path, post: true, write: true, parse: bulkAction(path)}
	}
	verb := func(path string, parse func(*call) serve) route {
		return route{path: path, verb: path, post: true, write: true, parse: parse}
	}
	return []route{
		page("", overviewPage),
		page("events", eventsPage),
		page("find", findPage),
		page("queues", queuesPage),
		page("queue", queuePage),
		page("jobs", jobsPage),
		page("job", jobPage),
		page("dead", deadPage),
		page("streams", streamsPage),
		page("stream", streamPage),
		page("relays", relaysPage),
		page("relay", relayPage),
		page("flows", flowsPage),
		page("run", runPage),
		page("actors", actorsPage),
		page("schedules", schedulesPage),
		page("batches", batchesPage),
		page("locks", locksPage),
		page("workers", workersPage),
		page("file", filePage),
		page("audit", auditPage),
		{path: "export", verb: "export", parse: exportPage},
		{path: "check", verb: "check", post: true, parse: checkAction},

		jobs("requeue"),
		jobs("discard"),
		jobs("bury"),
		jobs("cancel"),
		jobs("run-now"),
		verb("enqueue", enqueueAction),
		verb("pause", pauseAction),
		verb("resume", resumeAction),
		verb("limits", limitsAction),
		verb("retention", retentionAction),
		verb("seek", seekAction),
		verb("delete-consumer", deleteConsumerAction),
		verb("delete-group", deleteGroupAction),
		verb("redeliver", redeliverAction),
		verb("discard-event", discardEventAction),
		verb("trigger", triggerAction),
		verb("pause-schedule", pauseScheduleAction),
		verb("resume-schedule", resumeScheduleAction),
		verb("break-lock", breakLockAction),
		verb("requeue-relay", requeueRelayAction),
		verb("discard-relay", discardRelayAction),
		verb("break-relay", breakRelayAction),
		verb("signal-run", signalRunAction),
		verb("cancel-run", cancelRunAction),
		verb("restart-run", restartRunAction),
		verb("pause-actor", pauseActorAction),
		verb("resume-actor", resumeActorAction),
		verb("stop-actor", stopActorAction),
		verb("break-presence", breakPresenceAction),
		verb("cancel-batch", cancelBatchAction),
		verb("maintain", maintainAction),
		verb("vacuum", vacuumAction),
	}
}

// ServeHTTP implements http.Handler. It is safe for concurrent use.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	limitBody(w, r)
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if r.URL.Path == "" {
		redirectInside(w, r)
		return
	}
	if a, ok := assets[name]; ok {
		a.serve(w, r)
		return
	}
	began := time.Now()
	c := &call{h: h, w: w, r: r, began: began, now: began, allowed: map[[2]string]bool{}, fragment: r.Header.Get("Honker-Fragment") != ""}
	if err := h.dispatch(c, name); err != nil {
		c.fail(err)
	}
}

// redirectInside redirects from a prefix without a trailing slash to the prefix with the slash.
// http.StripPrefix leaves an empty path for such a request.
func redirectInside(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	w.Header().Set("Location", "./"+asked[strings.LastIndexByte(asked, '/')+1:]+"/")
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// dispatch checks the method, the origin and the authorization of a call and then serves it.
func (h *Handler) dispatch(c *call, name string) error {
	rt, ok := h.routes[name]
	if !ok {
		return notFound("This page does not exist.")
	}
	if err := c.checkMethod(rt); err != nil {
		return err
	}
	if err := h.cross.Check(c.r); err != nil {
		return c.crossOrigin(err)
	}
	if h.opts.Authorize == nil {
		return refused(errNoAuthorize)
	}
	run, fault := c.parse(rt)
	// Authorize before reporting a fault, because an unauthorized client must not learn which files and
	// parameters exist.
	if err := h.authorize(c.r, c.access); err != nil {
		c.file = nil // the error page must not link to this file or others
		return refused(err)
	}
	if fault != nil {
		return fault
	}
	return run()
}

// parse returns a function that serves the call, or an error if the parameters are invalid.
func (c *call) parse(rt route) (serve, error) {
	if err := c.open(rt); err != nil {
		return nil, err
	}
	run := rt.parse(c)
	return run, c.params.err()
}

// by returns the operator's name.
func (c *call) by() string {
	if c.h.opts.By == nil {
		return "dashboard"
	}
	return c.h.opts.By(c.r)
}

func (c *call) checkMethod(rt route) error {
	allow := "GET, HEAD"
	if rt.post {
		allow = "POST"
	}
	if slices.Contains(strings.Split(allow, ", "), c.r.Method) {
		return nil
	}
	c.w.Header().Set("Allow", allow)
	return &problem{http.StatusMethodNotAllowed, "Method not allowed", "Use " + strings.ReplaceAll(allow, ", ", " or ") + "."}
}

// open sets the verb in the call's Access, reads the parameters, and looks up the requested file.
func (c *call) open(rt route) error {
	c.access = Access{Verb: rt.verb, Write: rt.write}
	p, err := readParams(c.w, c.r, rt.post)
	if err != nil {
		return err
	}
	c.params = p
	f, ok := c.h.files[p.text("db", maxName)]
	if !ok {
		return notFound("This file does not exist.")
	}
	if f.db == nil {
		return &problem{http.StatusInternalServerError, "No file", "ui.New was called with a nil DB."}
	}
	c.file, c.db, c.now = f, f.db, admin.Now(f.db)
	c.ctx = c.inName(c.r.Context())
	return nil
}

// inName returns a copy of ctx that names the operator and the address for the audit log.
func (c *call) inName(ctx context.Context) context.Context {
	remote, _, err := net.SplitHostPort(c.r.RemoteAddr)
	if err != nil {
		remote = c.r.RemoteAddr
	}
	return admin.WithRemote(honker.WithActor(ctx, c.by()), remote)
}

// crossOrigin returns the error for a request from another site's page. Because a proxy may be the cause, the
// text explains how to trust the origin.
func (c *call) crossOrigin(err error) error {
	c.h.opts.Logger.Warn("honker ui: a request from another origin was refused",
		"origin", c.r.Header.Get("Origin"), "host", c.r.Host, "error", err)
	return &problem{http.StatusForbidden, "Cross-site request", "The browser sent this request from a page of " + quoted(c.r.Header.Get("Origin")) +
		", but the request is addressed to " + quoted(c.r.Host) + ". If a proxy changes the Host, add the origin of the page to ui.Options.Origins."}
}

func quoted(s string) string { return "“" + s + "”" }

// problem is an error with an HTTP status and the text of an error page.
type problem struct {
	status      int
	title, text string
}

func (p *problem) Error() string { return p.title + ": " + p.text }

func notFound(text string) error { return &problem{http.StatusNotFound, "Not found", text} }

func refused(err error) error {
	if errors.Is(err, ErrLogin) {
		return &problem{http.StatusUnauthorized, "Sign in", err.Error()}
	}
	return &problem{http.StatusForbidden, "Not allowed", err.Error()}
}

// problemOf converts an error to the problem to show.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	status, title := http.StatusInternalServerError, "The request failed"
	switch {
	case errors.Is(err, honker.ErrInvalid):
		status, title = http.StatusBadRequest, "Invalid request"
	case errors.Is(err, honker.ErrNotFound):
		status, title = http.StatusNotFound, "Not found"
	case errors.Is(err, honker.ErrUnsupported):
		status, title = http.StatusNotImplemented, "Not available for this database"
	case errors.Is(err, honker.ErrReadOnly):
		status, title = http.StatusForbidden, "The file is open read-only"
	case errors.Is(err, runflow.ErrSignalled), errors.Is(err, runflow.ErrRunning):
		status, title = http.StatusConflict, "The run has gone on"
	case errors.Is(err, honker.ErrLockHeld):
		status, title = http.StatusConflict, "Another process is doing this"
	case errors.Is(err, honker.ErrBusy), errors.Is(err, honker.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		status, title = http.StatusServiceUnavailable, "Temporarily unavailable"
	}
	return &problem{status, title, err.Error()}
}

// fail writes an error page. If the request was canceled, fail writes nothing.
func (c *call) fail(err error) {
	if c.r.Context().Err() != nil {
		return
	}
	p := problemOf(err)
	if p.status == http.StatusUnauthorized {
		c.w.Header().Set("WWW-Authenticate", `Basic realm="honker", charset="UTF-8"`)
	}
	if p.status == http.StatusInternalServerError {
		c.h.opts.Logger.Error("honker ui: a page failed", "path", c.r.URL.Path, "error", err)
	}
	if err := c.render(p.status, view{name: "problem", title: p.title, data: p.text}); err != nil {
		c.h.opts.Logger.Error("honker ui: a page failed", "path", c.r.URL.Path, "error", err)
	}
}

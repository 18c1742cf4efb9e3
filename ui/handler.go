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
)

// Options of a Handler. The zero value of a field means its default.
type Options struct {
	// Authorize decides about each request, for a page as for a verb, and about each verb that a page
	// offers: so it is called several times for a page. It returns nil to allow what a says, ErrLogin to
	// have the browser ask for a password, and another error to refuse, the text of which is shown. nil
	// refuses everything, with a page that says how to change that.
	Authorize func(r *http.Request, a Access) error
	ReadOnly  bool // offers no verb and refuses all that change something, whatever Authorize says

	// By returns the operator's name, for the audit and for pauses; default "dashboard".
	By func(r *http.Request) string
	// Redact changes a payload before it is shown, and returns nil to hide it. Jobs cannot be
	// searched by their payloads, or exported, then: an answer would tell what was hidden.
	Redact func(queue string, payload json.RawMessage) json.RawMessage
	// Origins are other origins that may change things, such as "https://ops.example.com": for a proxy
	// that rewrites the Host. The page that refuses a request names the one it needs.
	Origins []string
	Enqueue bool // offers to enqueue a job by hand

	Title string // of the environment, on each page and in the tab: "production"
	Color string // of the title's bar, as SVG knows colors: "#c00", "orange"
	// Links are shown with a job: to its trace, to the order or the customer that it is about.
	Links func(*honker.JobInfo) []Link

	DB     map[string]*honker.DB // more files, by the names that the pages have for them
	Logger *slog.Logger          // told of what was changed, and of failures; nil: slog.Default()
}

// Link is shown with a job.
type Link struct {
	Text string
	URL  string // http, https or mailto; others are not linked
}

// Handler is the dashboard, an http.Handler. Mount it under any prefix, with or without http.StripPrefix:
// its pages link to one another relatively.
type Handler struct {
	opts   Options
	routes map[string]route
	files  map[string]*file
	names  []string // of files, the one of New first
	cross  *http.CrossOriginProtection
	mu     sync.Mutex      // orders Close and spawn
	ended  context.Context // at Close
	end    context.CancelFunc
	// running are the goroutines that outlive a request: the loops that follow files, and checks.
	running sync.WaitGroup
}

// file is one of the files that a Handler shows.
type file struct {
	name    string
	db      *honker.DB
	viewers viewers
	checker checker
}

// New returns the dashboard of db. It touches nothing; a nil db, or an origin that is none, is answered
// by an error to each request. nil opts means defaults, which refuse everything.
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
			h.opts.Logger.Error("honker ui: an origin of Options.Origins is left out", "origin", origin, "error", err)
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

// Close ends the streams of open pages, and a check that runs, and returns when they have ended. Pages are
// answered after it, without being live. http.Server.Shutdown waits for streams, so register it:
//
//	srv.RegisterOnShutdown(h.Close)
func (h *Handler) Close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.running.Wait()
}

// spawn runs f in a goroutine that Close waits for, and reports false after Close.
func (h *Handler) spawn(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended.Err() != nil {
		return false
	}
	h.running.Go(f)
	return true
}

// call is one request.
type call struct {
	h        *Handler
	file     *file
	db       *honker.DB
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context // of the request, with the operator's name and address
	params   *params
	access   Access
	allowed  map[[2]string]bool
	now      time.Time
	fragment bool // only what is inside of main is asked for, by the script
}

// serve answers a call that was allowed.
type serve func() error

// route is a page or a verb. All of them are rows of routes.
type route struct {
	path  string // the last element of the URL's
	verb  string // of Access
	post  bool   // it is asked for by POST; a page by GET
	write bool
	// parse reads all parameters, completes the call's Access, and returns what is to be done. It
	// changes nothing.
	parse func(*call) serve
}

// routes are all pages and verbs: a request that is not answered by one of these is not found.
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
		page("queue", queuePage),
		page("jobs", jobsPage),
		page("job", jobPage),
		page("dead", deadPage),
		page("streams", streamsPage),
		page("stream", streamPage),
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
		verb("cancel-batch", cancelBatchAction),
		verb("maintain", maintainAction),
	}
}

// ServeHTTP implements http.Handler. It may be called by any number of goroutines.
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
	c := &call{h: h, w: w, r: r, now: time.Now(), allowed: map[[2]string]bool{}, fragment: r.Header.Get("Honker-Fragment") != ""}
	if err := h.dispatch(c, name); err != nil {
		c.fail(err)
	}
}

// redirectInside leads from a prefix without its slash, which StripPrefix has taken away, to the pages below.
func redirectInside(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	w.Header().Set("Location", "./"+asked[strings.LastIndexByte(asked, '/')+1:]+"/")
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// dispatch is the one way to a page or a verb.
func (h *Handler) dispatch(c *call, name string) error {
	rt, ok := h.routes[name]
	if !ok {
		return notFound("There is no such page.")
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
	// Before the fault is told: only a request that is allowed may learn which files there are, and what a page takes.
	if err := h.authorize(c.r, c.access); err != nil {
		c.file = nil // the page has no links to this file or others
		return refused(err)
	}
	if fault != nil {
		return fault
	}
	return run()
}

// parse returns what the request asks for, or what is wrong with it.
func (c *call) parse(rt route) (serve, error) {
	if err := c.open(rt); err != nil {
		return nil, err
	}
	run := rt.parse(c)
	return run, c.params.err()
}

// by is the operator's name.
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
	return &problem{http.StatusMethodNotAllowed, "Not this way", "This page is asked for by " + allow + "."}
}

// open begins the call's Access, reads the parameters, and finds the file that they name.
func (c *call) open(rt route) error {
	c.access = Access{Verb: rt.verb, Write: rt.write}
	p, err := readParams(c.w, c.r, rt.post)
	if err != nil {
		return err
	}
	c.params = p
	f, ok := c.h.files[p.text("db", maxName)]
	if !ok {
		return notFound("There is no such file.")
	}
	if f.db == nil {
		return &problem{http.StatusInternalServerError, "No file", "ui.New was given a nil DB."}
	}
	c.file, c.db = f, f.db
	remote, _, err := net.SplitHostPort(c.r.RemoteAddr)
	if err != nil {
		remote = c.r.RemoteAddr
	}
	c.ctx = admin.WithRemote(honker.WithActor(c.r.Context(), c.by()), remote)
	return nil
}

// crossOrigin refuses a request that another site's page has sent, and says what to do if it was not.
func (c *call) crossOrigin(err error) error {
	c.h.opts.Logger.Warn("honker ui: a request from another origin was refused",
		"origin", c.r.Header.Get("Origin"), "host", c.r.Host, "error", err)
	return &problem{http.StatusForbidden, "From another site", "The browser says that this came from " + quoted(c.r.Header.Get("Origin")) +
		", and the server is asked for as " + quoted(c.r.Host) + ". If a proxy between them changes the Host, name the first one in ui.Options.Origins."}
}

func quoted(s string) string { return "“" + s + "”" }

// problem is an answer that is an error.
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

// problemOf is what an error of honker's means for a browser.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	status, title := http.StatusInternalServerError, "This did not work"
	switch {
	case errors.Is(err, honker.ErrInvalid):
		status, title = http.StatusBadRequest, "This is not possible"
	case errors.Is(err, honker.ErrNotFound):
		status, title = http.StatusNotFound, "Not found"
	case errors.Is(err, honker.ErrReadOnly):
		status, title = http.StatusForbidden, "The file is open for looking only"
	case errors.Is(err, honker.ErrLockHeld):
		status, title = http.StatusConflict, "Another process does this"
	case errors.Is(err, honker.ErrBusy), errors.Is(err, honker.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		status, title = http.StatusServiceUnavailable, "Not now"
	}
	return &problem{status, title, err.Error()}
}

// fail answers with an error. A browser that is gone is not told.
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

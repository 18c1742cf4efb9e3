package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/admin"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates maps page names to templates. Each template consists of the layout and the page
// content.
var templates = map[string]*template.Template{}

func init() {
	base := template.Must(template.New("layout.html").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	pages, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err)
	}
	for _, file := range pages {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "templates/"), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		templates[name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, file))
	}
}

// view holds the template name and data for a page.
type view struct {
	name  string // name of the template
	nav   string // path of the page's navigation menu entry
	title string
	data  any
	// next is when the page will change without a commit. It's zero if the page changes only on commits.
	next time.Time
}

// page is the data passed to templates.
type page struct {
	c         *call
	View, Nav string
	Title     string
	Flash     *flash
	Data      any
	Next      time.Time
}

// maxPage is the maximum size of a page in bytes. Browsers are too slow with larger pages.
const maxPage = 4 << 20

// show writes a page. If the script has requested a fragment, show writes only the content of the main element,
// with an ETag that tells the script whether it has changed.
func (c *call) show(v view) error {
	if c.fragment {
		defer func() { c.file.viewers.served(time.Since(c.began)) }()
		return c.showFragment(v)
	}
	return c.render(http.StatusOK, v)
}

func (c *call) page(v view) *page {
	p := &page{c: c, View: v.name, Nav: v.nav, Title: v.title, Data: v.data, Next: v.next}
	if c.params != nil && !c.fragment {
		p.Flash = c.flash()
	}
	return p
}

func (c *call) execute(template string, v view) ([]byte, error) {
	var out bytes.Buffer
	if err := templates[v.name].ExecuteTemplate(&out, template, c.page(v)); err != nil {
		return nil, fmt.Errorf("page %s: %w", v.name, err)
	}
	if out.Len() > maxPage {
		return nil, &problem{http.StatusInsufficientStorage, "Page too large", "Narrow the filter or request fewer rows."}
	}
	// Text written by other programs may be invalid UTF-8.
	return bytes.ToValidUTF8(out.Bytes(), []byte("�")), nil
}

func (c *call) render(status int, v view) error {
	body, err := c.execute("layout.html", v)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body)
	return nil
}

func (c *call) showFragment(v view) error {
	body, err := c.execute("main", v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h := c.w.Header()
	h.Set("ETag", tag)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Honker-Now", c.now.UTC().Format(time.RFC3339Nano))
	if c.r.Header.Get("If-None-Match") == tag {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	_, _ = c.w.Write(body)
	return nil
}

// URL returns a relative link to a page. pairs consists of alternating parameter names and values. Empty values are
// omitted.
func (p *page) URL(path string, pairs ...any) string { return p.c.link(path, values(pairs...)) }

// link returns a relative link to a page. It returns "" if a value cannot be used as a parameter, such as a queue
// name that is not valid UTF-8.
func (c *call) link(path string, v url.Values) string {
	for _, all := range v {
		if slices.ContainsFunc(all, isNoText) {
			return ""
		}
	}
	return c.url(path, v)
}

func (c *call) url(path string, v url.Values) string {
	if v == nil {
		v = url.Values{}
	}
	if c.file != nil && c.file.name != "" {
		v.Set("db", c.file.name)
	}
	if path == "" {
		path = "./"
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// values builds parameters from alternating names and values. It omits empty text and the number 0.
func values(pairs ...any) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		_, text := pairs[i+1].(string)
		if s := fmt.Sprint(pairs[i+1]); s != "" && (text || s != "0") {
			v.Add(fmt.Sprint(pairs[i]), s)
		}
	}
	return v
}

// Can reports whether the page should offer a verb, for the given queue or else for the page's
// queue.
func (p *page) Can(verb string, queue ...string) bool {
	if p.c.file == nil {
		return false
	}
	if len(queue) > 0 {
		return !isNoText(queue[0]) && p.c.can(verb, queue[0]) // a form cannot send an invalid name
	}
	return p.c.can(verb, p.c.access.Queue)
}

// Here returns the URL of the current page. Verbs redirect to it.
func (p *page) Here() string { return p.c.here() }

func (c *call) here() string {
	v := url.Values{}
	if c.params != nil {
		v = withoutParams(c.params.values, slices.Concat(selectionParams, flashParams, []string{"patient"})...)
	}
	name := c.r.URL.Path[strings.LastIndexByte(c.r.URL.Path, '/')+1:]
	return c.url(name, v)
}

// File returns the name of the current file.
func (p *page) File() string {
	if p.c.file == nil {
		return ""
	}
	return p.c.file.name
}

// Files returns the names of all files, or nil if there is only one.
func (p *page) Files() []string {
	if p.c.file == nil || len(p.c.h.names) < 2 {
		return nil
	}
	return p.c.h.names
}

// FileURL returns a link to this page for another file.
func (p *page) FileURL(name string) string {
	path := p.Nav
	if path == "" {
		path = "./"
	}
	if name == "" {
		return path
	}
	return path + "?" + url.Values{"db": {name}}.Encode()
}

// Env returns the environment name.
func (p *page) Env() string { return p.c.h.opts.Title }

// Color returns the color of the title bar.
func (p *page) Color() string { return p.c.h.opts.Color }

// Asset returns an asset's name including its hash.
func (p *page) Asset(name string) string { return assetNames[name] }

// Now returns the server's time for the page's script.
func (p *page) Now() string { return p.c.now.UTC().Format(time.RFC3339Nano) }

// Live reports whether the page is updated after commits.
func (p *page) Live() bool { return p.c.file != nil && p.View != "problem" && p.View != "confirm" }

// Redacts reports whether Options.Redact is set. If so, payloads cannot be searched.
func (p *page) Redacts() bool { return p.c.h.opts.Redact != nil }

// Ago formats a time relative to now. The page's script keeps the text up to date. Fragments contain the absolute
// time instead and the script adds the text, so a fragment's ETag doesn't change over time.
func (p *page) Ago(t time.Time) template.HTML { return p.time(t, "ago") }

// Age is like Ago, but omits the word "ago".
func (p *page) Age(t time.Time) template.HTML { return p.time(t, "age") }

func (p *page) time(t time.Time, kind string) template.HTML {
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	stamp := t.UTC().Format("2006-01-02 15:04:05") + " UTC"
	text := stamp
	if !p.c.fragment {
		// The script must use the same format.
		if text = admin.FormatAgo(p.c.now.Sub(t)); kind == "age" {
			text = admin.FormatAge(p.c.now.Sub(t).Abs())
		}
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-as="%s" title="%s">%s</time>`,
		t.UTC().Format(time.RFC3339Nano), kind, stamp, text)) // the values need no escaping
}

// bind returns the data for a nested template, which needs both the page and its own data.
func bind(p *page, data any) map[string]any { return map[string]any{"P": p, "V": data} }

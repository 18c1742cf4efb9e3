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
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are the pages by their names: each is the layout with a content of its own.
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

// view is what a page shows: a template and its data.
type view struct {
	name  string // of the template
	nav   string // the path of the entry of the navigation that it belongs to
	title string
	data  any
	// next is when something on the page changes by time alone; zero: nothing will.
	next time.Time
}

// page is what the templates see.
type page struct {
	c         *call
	View, Nav string
	Title     string
	Flash     string
	Data      any
	Next      time.Time
}

// pageBudget is how long a page searches before it shows what it has found, and a link that goes on. A search runs one
// at a time, and an open page repeats it.
var pageBudget = 30 * time.Millisecond

// maxPage bounds an answer; larger pages would be of no use to a browser.
const maxPage = 4 << 20

// show answers with a page: whole, or only what is inside of main, with a tag by which the script finds
// out that nothing has changed.
func (c *call) show(v view) error {
	if c.fragment {
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
		return nil, &problem{http.StatusInsufficientStorage, "Too much for one page", "Narrow the filter, or ask for fewer rows."}
	}
	// Other programs may have written names and texts that are no UTF-8.
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

// URL is a relative link to a page, with pairs of names and values; empty values are left out.
func (p *page) URL(path string, pairs ...any) string { return p.c.link(path, values(pairs...)) }

// link is a relative link to a page; "" if one of the values cannot be a parameter, such as the name of a queue that is
// no text.
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

// values makes parameters of names and values.
func values(pairs ...any) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if s := fmt.Sprint(pairs[i+1]); s != "" && s != "0" {
			v.Add(fmt.Sprint(pairs[i]), s)
		}
	}
	return v
}

// Can reports whether a verb is offered, for one queue or in general.
func (p *page) Can(verb string, queue ...string) bool {
	if p.c.file == nil {
		return false
	}
	if len(queue) > 0 {
		return !isNoText(queue[0]) && p.c.can(verb, queue[0]) // a form could not name it
	}
	return p.c.can(verb, p.c.access.Queue)
}

// Here is the page itself, for a verb to come back to.
func (p *page) Here() string { return p.c.here() }

func (c *call) here() string {
	v := url.Values{}
	if c.params != nil {
		v = withoutParams(c.params.values, slices.Concat(selectionParams, flashParams)...)
	}
	name := c.r.URL.Path[strings.LastIndexByte(c.r.URL.Path, '/')+1:]
	return c.url(name, v)
}

// File is the name of the file that is shown; Files are all names, if there are several.
func (p *page) File() string {
	if p.c.file == nil {
		return ""
	}
	return p.c.file.name
}

// Files are the names of all files, where there are several.
func (p *page) Files() []string {
	if p.c.file == nil || len(p.c.h.names) < 2 {
		return nil
	}
	return p.c.h.names
}

// FileURL leads to the same page of another file.
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

// Env is the name of the environment, Color that of its bar.
func (p *page) Env() string { return p.c.h.opts.Title }

// Color is that of the environment's bar.
func (p *page) Color() string { return p.c.h.opts.Color }

// Asset is the name of an asset, with its hash.
func (p *page) Asset(name string) string { return assetNames[name] }

// Now is the time of the server, for the script.
func (p *page) Now() string { return p.c.now.UTC().Format(time.RFC3339Nano) }

// Live reports whether the page follows the file.
func (p *page) Live() bool { return p.c.file != nil && p.View != "problem" && p.View != "confirm" }

// Redacts reports whether payloads may be hidden, so that they are not searched.
func (p *page) Redacts() bool { return p.c.h.opts.Redact != nil }

// Ago is a time as a distance from now. The script keeps it right, and writes it where only a part of the
// page is asked for: that has the time itself, so that it stays the same while nothing happens.
func (p *page) Ago(t time.Time) template.HTML { return p.time(t, "ago") }

// Age is how long ago a time was, without a word.
func (p *page) Age(t time.Time) template.HTML { return p.time(t, "age") }

func (p *page) time(t time.Time, kind string) template.HTML {
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	stamp := t.UTC().Format("2006-01-02 15:04:05") + " UTC"
	text := stamp
	if !p.c.fragment {
		text = relative(t, p.c.now, kind == "ago")
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-as="%s" title="%s">%s</time>`,
		t.UTC().Format(time.RFC3339Nano), kind, stamp, text)) // digits and letters only
}

// bind joins a part's data to the page that it is on.
func bind(p *page, data any) map[string]any { return map[string]any{"P": p, "V": data} }

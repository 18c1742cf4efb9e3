package honkerprom

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
)

// Collector collects metrics about the state of a database.
type Collector struct {
	opts  Options
	parts []*part

	mu      sync.Mutex // guards the following fields and the values of the parts
	db      *honker.DB
	looking chan struct{} // closed at the end of the current read; nil if no read is running
	until   time.Time     // when the cached values expire
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector for the state of db. The caller must register it. The collector reads the
// database when it is scraped and never writes to it.
//
// Concurrent scrapes share a read. If a read takes longer than 10 ms, its result is cached for 20 times as long, so
// that reading uses at most 5% of a CPU. A scrape waits at most a second for a read. After that, it returns the
// values from the previous read. The read continues in the background, because a running statement cannot be
// interrupted. The metric honker_scrape_stale_seconds reports the age of the values.
//
// A nil opts selects the defaults. New panics if db is nil.
func New(db *honker.DB, opts *Options) *Collector {
	if db == nil {
		panic("honkerprom: New: nil *honker.DB")
	}
	c := &Collector{db: db, opts: opts.withDefaults()}
	c.parts = newParts(c.opts)
	for _, p := range c.parts {
		p.at = time.Now()
	}
	return c
}

const (
	// deadline is the maximum time that a scrape waits.
	deadline = time.Second
	// The result of a read that took longer than quick is cached for keptFor times as long.
	quick   = 10 * time.Millisecond
	keptFor = 20
)

// part is a group of metrics that are read together. If a read fails, none of them are updated.
type part struct {
	name string
	look look

	metrics []prometheus.Metric // result of the last successful read
	at      time.Time           // start of the last successful read
	err     error               // error of the last read, or nil
}

var staleDesc = prometheus.NewDesc("honker_scrape_stale_seconds",
	"Age of the values of a part.", []string{"part"}, nil)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- staleDesc
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	late := time.NewTimer(deadline)
	defer late.Stop()
	select {
	case <-c.look(false):
	case <-late.C:
	}
	for _, m := range c.values() {
		ch <- m
	}
}

// values returns the metrics from each part's last successful read, along with their ages.
func (c *Collector) values() (all []prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		all = append(all, p.metrics...)
		all = append(all, prometheus.MustNewConstMetric(staleDesc, prometheus.GaugeValue, time.Since(p.at).Seconds(), p.name))
	}
	return append(all, buildInfo())
}

// Read reads the database, even if cached values have not expired. It blocks until the read
// completes or ctx is done, and returns the errors of all parts that could not be read. Use it in a
// program that writes its metrics once and exits.
func (c *Collector) Read(ctx context.Context) error {
	select {
	case <-c.look(true):
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, p := range c.parts {
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// Reopen makes later reads use db, which must be the same database, opened again. Labels and values are kept. Use it in
// a program that opens the database only for each read. A nil db is ignored.
func (c *Collector) Reopen(db *honker.DB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if db != nil {
		c.db = db
	}
}

// look starts a read unless a read is already running. If anew is false, it doesn't start a read while cached values
// are valid. The returned channel is closed when the values are up to date.
func (c *Collector) look(anew bool) (done <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking != nil {
		return c.looking
	}
	ended := make(chan struct{})
	if !anew && time.Now().Before(c.until) {
		close(ended)
		return ended
	}
	c.looking = ended
	// A running statement cannot be interrupted, so the read must not block the scrape.
	go c.readAll(ended)
	return ended
}

func (c *Collector) readAll(ended chan struct{}) {
	began := time.Now()
	for _, p := range c.parts {
		c.read(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if took := time.Since(began); took > quick {
		c.until = time.Now().Add(keptFor * took)
	}
	c.looking = nil
	close(ended)
}

// read updates p's values. On error, it keeps the old values and logs only the first of consecutive failures.
func (c *Collector) read(p *part) {
	began := time.Now()
	metrics, err := c.try(p)
	c.mu.Lock()
	first := err != nil && p.err == nil
	p.err = err
	if err == nil {
		p.metrics, p.at = metrics, began
	}
	c.mu.Unlock()
	if first {
		c.opts.Logger.Warn("honker: metrics could not be read; keeping the last values", "part", p.name, "error", err)
	}
}

// try reads p. A panic in QueueLabel, which would crash the process, is returned as an error.
func (c *Collector) try(p *part) (metrics []prometheus.Metric, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	c.mu.Lock()
	db := c.db
	c.mu.Unlock()
	return p.look(context.Background(), db)
}

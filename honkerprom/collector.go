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

// Collector tells what is in the file.
type Collector struct {
	db    *honker.DB
	opts  Options
	parts []*part

	mu      sync.Mutex    // guards what follows, and the values of the parts
	looking chan struct{} // closed when the look that runs has ended; nil: none runs
	until   time.Time     // the values are not read again before
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector of what is in the file of db, to be registered. It reads when it is scraped, and
// writes nothing. Scrapes at one time share a read; a read that took longer than 10 ms serves all
// scrapes of the next twenty times as long, so it takes no more than a twentieth of one processor, however
// often it is asked for. A scrape waits for up to a second. Then it has the values of the last read, and
// honker_scrape_stale_seconds says how old those are; the read goes on, in a goroutine of its own,
// until its statement has ended. nil opts means defaults; nil as the DB panics.
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
	// deadline is how long a scrape waits.
	deadline = time.Second
	// A look that took longer than quick is kept for keptFor times as long.
	quick   = 10 * time.Millisecond
	keptFor = 20
)

// part is what is read together, and fails together.
type part struct {
	name string
	look func(ctx context.Context, db *honker.DB) ([]prometheus.Metric, error)

	metrics []prometheus.Metric // of the last look that has succeeded
	at      time.Time           // when it began
	err     error               // of the last look; nil: it has succeeded
}

var staleDesc = prometheus.NewDesc("honker_scrape_stale_seconds",
	"How long ago this part of the values was read.", []string{"part"}, nil)

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

// values are those of the last looks.
func (c *Collector) values() (all []prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		all = append(all, p.metrics...)
		all = append(all, prometheus.MustNewConstMetric(staleDesc, prometheus.GaugeValue, time.Since(p.at).Seconds(), p.name))
	}
	return all
}

// Read reads the file, also where what was read before need not be read again yet, and returns when that is done or ctx ends, with what could not be
// read. It is for a program that writes its metrics once and ends, with no next scrape to make up for it.
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

// look begins to read the file, unless that is being done or, but for anew, need not be done yet. The channel is
// closed when the values are read.
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
	// A statement that has begun cannot be interrupted, so it must not be the scrape's.
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

// read takes the values of p anew, and leaves the old ones where that fails.
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
		c.opts.Logger.Warn("honker: metrics could not be read, and stay as they are", "part", p.name, "error", err)
	}
}

// try makes an error of a panic of QueueLabel: it would end the process.
func (c *Collector) try(p *part) (metrics []prometheus.Metric, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return p.look(context.Background(), c.db)
}

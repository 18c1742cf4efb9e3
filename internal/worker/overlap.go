package worker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// A server writes a batch on its own processors. A pool of a database on a server therefore starts a large batch while
// another is under way: the server settles and claims jobs while the handlers of the jobs before run. At most one of them
// claims, so that jobs start in the order of claims. The goroutine that called Run still makes all decisions, and another
// goroutine waits for the write.
const (
	overlap     = 2              // batches under way
	overlapJobs = batchLimit / 4 // settles and claims that are worth a batch beside another

	// longestWindow is the upper bound of Prefetch.window.
	longestWindow = 50 * time.Millisecond
)

// underWay are the batches that other goroutines write. It belongs to the goroutine that called Run.
type underWay struct {
	written  chan *batchOp // capacity overlap
	n        int
	settling int // finished jobs of these batches
	claiming int // jobs that these batches claim
}

// overlaps reports whether batches may overlap. A file has a single writer. The claims of limited queues and of lanes
// that take turns depend on the claim before.
func (p *Pool) overlaps() bool {
	return p.source.Engine.Stores.Single && p.slots == nil && !row.TakeTurns(p.source.Lanes) && !p.source.Limited()
}

// turnOverlapped is a turn of loop with overlapping batches. A small batch is written by this goroutine, if no other
// batch is under way.
func (p *Pool) turnOverlapped(ctx context.Context) error {
	if p.under.n == overlap || p.under.n > 0 && !p.worthBatch() {
		return p.awaitWritten(ctx)
	}
	done := p.takeFinished()
	want := p.want(len(done))
	if !p.more || p.under.claiming > 0 {
		want = 0
	}
	switch {
	case p.under.n > 0 && len(done)+want == 0:
		return p.awaitWritten(ctx)
	case len(done)+want == 0:
		return p.waitForWork(ctx)
	case p.under.n > 0 || len(done)+want >= overlapJobs:
		p.startBatch(done, want)
		return nil
	}
	return p.runBatch(p.settleCtx, done, want)
}

// worthBatch reports whether a batch would settle or claim enough jobs to be worth its commit.
func (p *Pool) worthBatch() bool {
	p.mu.Lock()
	finished := len(p.finished)
	p.mu.Unlock()
	return finished >= overlapJobs || p.more && p.under.claiming == 0 && p.idle(0) >= overlapJobs
}

// startBatch writes a batch in another goroutine.
func (p *Pool) startBatch(done []*activeJob, want int) {
	b := &batchOp{ClaimOp: p.newClaim(want), done: done, asked: want}
	p.under.n++
	p.under.settling += len(done)
	p.under.claiming += want
	began := time.Now()
	go func() {
		b.err = p.write(p.settleCtx, b)
		b.lasted = time.Since(began)
		p.under.written <- b
	}()
}

// awaitWritten waits until a batch is written or another is worth its commit.
func (p *Pool) awaitWritten(ctx context.Context) error {
	select {
	case b := <-p.under.written:
		return p.wrote(b)
	case <-p.plenty:
	case <-ctx.Done():
	}
	return nil
}

// wrote ends a batch of startBatch.
func (p *Pool) wrote(b *batchOp) error {
	p.under.n--
	p.under.settling -= len(b.done)
	p.under.claiming -= b.asked
	p.prefetch.window = min(2*b.lasted, longestWindow)
	return p.endBatch(p.settleCtx, b, b.err)
}

// collect waits for the batches under way, and ends them.
func (p *Pool) collect() {
	for p.under.n > 0 {
		_ = p.wrote(<-p.under.written) // on an error, the drain settles their jobs
	}
}

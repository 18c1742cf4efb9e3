package sqlite

import (
	"database/sql"
	"time"
)

// Bringer is an Op that others may wait for, by name.
type Bringer interface {
	Op
	Brings() string // "": nothing
}

// Ride is an op that waits to be carried by the commit that brings what it is for. So a
// worker that sleeps has claimed the job by the time it is committed: one commit less
// between the enqueue and the handler, with Full one sync less.
//
// It is a shortcut and no promise: only a commit of the same Committer carries it. Its
// failure is its own, unless it takes the transaction with it, as a trigger's ROLLBACK does.
type Ride struct {
	on   *Committer
	what string
	t    *ticket
}

// Ride has op run at the end of the next batch that brings what. Each Ride needs an End.
func (c *Committer) Ride(what string, op Op) *Ride {
	r := &Ride{c, what, &ticket{op: op, call: make(chan bool)}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rides == nil {
		c.rides = make(map[string][]*ticket)
	}
	c.rides[what] = append(c.rides[what], r.t)
	return r
}

// Done is closed when op has run, and its commit is over.
func (r *Ride) Done() <-chan bool { return r.t.call }

// End takes op back. If it is too late for that, ran is true, and err its outcome.
func (r *Ride) End() (ran bool, err error) {
	if r.on.getOff(r) {
		return false, nil
	}
	<-r.t.call
	return true, r.t.err
}

// getOff is false when r's op runs or has run.
func (c *Committer) getOff(r *Ride) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boardLocked(r.what, r.t) != nil
}

// boardLocked takes t, or the first if t is nil, from those who wait for what.
func (c *Committer) boardLocked(what string, t *ticket) *ticket {
	for i, one := range c.rides[what] {
		if t == nil || one == t {
			c.rides[what] = append(c.rides[what][:i:i], c.rides[what][i+1:]...)
			if len(c.rides[what]) == 0 {
				delete(c.rides, what)
			}
			return one
		}
	}
	return nil
}

// carriesLocked tells whether somebody waits for what op brings.
func (c *Committer) carriesLocked(op Op) bool {
	b, ok := op.(Bringer)
	return ok && len(c.rides[b.Brings()]) > 0
}

// board takes one ride for each thing that batch has brought: the others would find
// what the first has left, which they learn as they do of any other commit.
func (c *Committer) board(batch []*ticket) (riders []*ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rides) == 0 {
		return nil
	}
	served := make(map[string]bool, 1)
	for _, t := range batch {
		b, ok := t.op.(Bringer)
		if !ok || t.err != nil || served[b.Brings()] {
			continue
		}
		served[b.Brings()] = true
		if rider := c.boardLocked(b.Brings(), nil); rider != nil {
			riders = append(riders, rider)
		}
	}
	return riders
}

// carry runs the rides that batch calls for, and returns it with them. Its error is one
// that takes the transaction with it.
func (c *Committer) carry(conn *sql.Conn, batch []*ticket, now time.Time) (_ []*ticket, err error) {
	for _, t := range c.board(batch) {
		if err == nil {
			err = runOne(conn, t, now, false)
		}
		batch = append(batch, t)
	}
	return batch, err
}

package sqlite

import "time"

// yield makes a process that writes without a pause leave the writer free now and then, while
// another process wants it.
//
// SQLite has no queue for its write lock: a process that waits tries, sleeps for a while, and
// tries again. Its chance at each try is the share of the time in which the lock is free. Among
// writers that hand the lock on to one another that is next to nothing: beside ours a
// foreign writer with pauses of 2 ms came to 47 commits in four seconds, and waited for two of
// them at p99.
//
// Another process wants the writer when it has committed in the last two seconds. A connection
// that commits twice in a row sees that: its data version has moved in between. One that pauses
// between its commits is given no room before it has paused for as long as it does.
//
// All fields belong to the holder of the gate.
type yield struct {
	last    *conn  // committed last
	version uint32 // its data version then

	others   time.Time     // the last commit of another process that was seen
	rest     time.Duration // the shortest time between such commits of late
	acquired time.Time     // when the holder had the write lock
	released time.Time     // when the last holder gave it back
	busy     time.Duration // how long it was held since it was left free
}

const (
	yieldAfter  = 400 * time.Microsecond // of writing
	yieldFor    = 200 * time.Microsecond // or half as long as it was held, whichever is longer
	yieldAtMost = 10 * time.Millisecond  // after a long transaction
	yieldUntil  = 2 * time.Second        // without a commit of another process
)

// before waits, if it is time, on behalf of the next writer of this process. The others of
// this process gather meanwhile and go into its commit.
func (y *yield) before() {
	if y.others.IsZero() {
		return
	}
	y.acquired = time.Now()
	if pause := y.due(y.acquired); pause > 0 {
		Pause(pause)
		y.acquired = time.Now()
	}
}

// due is for how long the lock is to be left free from now on.
func (y *yield) due(now time.Time) time.Duration {
	free, away := now.Sub(y.released), now.Sub(y.others)
	busy := y.busy
	switch {
	case away > yieldUntil:
		y.others, y.busy = time.Time{}, 0
	case away < y.rest-y.rest/8:
		y.busy = yieldAfter + yieldAfter/2 // it is about to come
	case free >= yieldFor:
		y.busy = 0
	case busy >= yieldAfter:
		y.busy = 0
		return min(max(yieldFor, busy/2), yieldAtMost) - free
	}
	return 0
}

// began notes that c has the write lock, in a transaction.
func (y *yield) began(c *conn, now time.Time) {
	if y.last == c && y.version != c.dataVersion() {
		y.saw(now)
	}
	y.acquired = now
}

// saw notes a commit of another process.
func (y *yield) saw(now time.Time) {
	// It grows slowly: a process that has waited was kept from its usual time.
	y.rest = min(now.Sub(y.others), y.rest+y.rest/64+yieldFor/64)
	y.others = now
}

// ended notes that c has given the lock back. alone: it has run one statement, without began.
func (y *yield) ended(c *conn, alone bool) {
	version := c.dataVersion()
	if alone && y.last == c && version > y.version+1 { // its own commit is one
		y.saw(time.Now())
		y.acquired = y.others // part of the time it waited
	}
	y.last, y.version = c, version
	if !y.others.IsZero() {
		y.released = time.Now()
		y.busy += y.released.Sub(y.acquired)
	}
}

// dataVersion changes with each commit to the file that the connection has seen, its own
// and those of others.
func (c *conn) dataVersion() uint32 {
	v, _ := c.FileControlDataVersion("main")
	return v
}

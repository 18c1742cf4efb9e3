package sqlite

import "time"

// yield makes a process that writes continuously leave the write lock free occasionally if another process needs it.
//
// SQLite has no queue for its write lock: a waiting process tries, sleeps, and tries again. Its chance of success at
// each try is the fraction of the time that the lock is free. If writers hand the lock to each other, this fraction
// is close to zero. In a test, another process that paused for 2 ms between its commits made only 47 commits in four
// seconds, with a p99 wait of two seconds.
//
// Another process is assumed to need the lock if it has committed in the last two seconds. A connection that commits
// twice in a row notices such a commit because its data version changes in between. A process that pauses between its
// commits gets no extra time until its usual pause is over.
//
// All fields are owned by the holder of the gate.
type yield struct {
	last    *conn  // the connection that made the last commit
	version uint32 // its data version at that commit

	others   time.Time     // time of the last observed commit by another process
	rest     time.Duration // recent minimum time between such commits
	acquired time.Time     // when the holder got the write lock
	released time.Time     // when the last holder released it
	busy     time.Duration // time the lock was held since it was last left free
}

const (
	yieldAfter  = 400 * time.Microsecond // of writing
	yieldFor    = 200 * time.Microsecond // or half the time the lock was held, if that is longer
	yieldAtMost = 10 * time.Millisecond  // even after a long transaction
	yieldUntil  = 2 * time.Second        // since the last commit by another process
)

// before is called before this process's next writer takes the lock, and pauses if a pause is due. During the pause,
// this process's other writers queue up and join the commit.
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

// due returns how long the lock should be left free from now on.
func (y *yield) due(now time.Time) time.Duration {
	free, away := now.Sub(y.released), now.Sub(y.others)
	busy := y.busy
	switch {
	case away > yieldUntil:
		y.others, y.busy = time.Time{}, 0
	case away < y.rest-y.rest/8:
		y.busy = yieldAfter + yieldAfter/2 // the other process is about to commit again
	case free >= yieldFor:
		y.busy = 0
	case busy >= yieldAfter:
		y.busy = 0
		return min(max(yieldFor, busy/2), yieldAtMost) - free
	}
	return 0
}

// began records that c has taken the write lock in a transaction.
func (y *yield) began(c *conn, now time.Time) {
	if y.last == c && y.version != c.dataVersion() {
		y.saw(now)
	}
	y.acquired = now
}

// saw records a commit by another process.
func (y *yield) saw(now time.Time) {
	// Let rest grow slowly: a process that had to wait couldn't keep its usual rhythm.
	y.rest = min(now.Sub(y.others), y.rest+y.rest/64+yieldFor/64)
	y.others = now
}

// ended records that c released the lock. alone means that c ran a single statement without calling
// began.
func (y *yield) ended(c *conn, alone bool) {
	version := c.dataVersion()
	if alone && y.last == c && version > y.version+1 { // its own commit counts as one change
		y.saw(time.Now())
		y.acquired = y.others // don't count the time before: the statement spent part of it waiting
	}
	y.last, y.version = c, version
	if !y.others.IsZero() {
		y.released = time.Now()
		y.busy += y.released.Sub(y.acquired)
	}
}

// dataVersion returns a number that changes with each commit seen by the connection, including its
// own.
func (c *conn) dataVersion() uint32 {
	v, _ := c.FileControlDataVersion("main")
	return v
}

package relay

import "time"

const (
	defaultProcessors = 4

	// slowAfter is how long a batch counts against the default number of processors, and mostSlow is
	// how many batches may go on beyond it.
	slowAfter = 20 * time.Millisecond
	mostSlow  = 60
)

// slot is the place of a processor among the Processors of a run.
//
// Two rules keep endpoints that hang from holding up the others. All batches but one may be of
// partitions that failed the last time, so these never have the last processor. By default a batch
// that takes longer than slowAfter leaves its place to another: of endpoints that have not failed
// yet it is not known that they hang.
type slot struct {
	run *run

	// Guarded by run.mu.
	current *active // the batch that a handler has now
	slow    bool    // the place was left; counted in run.slow
	failing bool    // its batch is of a partition that failed the last time; counted in run.failing
}

// begin notes that the handler of a starts, and returns what ends that: false if a has left its
// place and there is none for another batch.
func (s *slot) begin(a *active) (end func() bool) {
	if s.run.relay.spare == 0 || a.handler.tx != nil { // a HandleTx holds the one writer: others would wait for it
		return func() bool { return true }
	}
	s.run.mu.Lock()
	s.current = a
	s.run.mu.Unlock()
	timer := time.AfterFunc(slowAfter, func() { s.leave(a) })
	return func() bool {
		timer.Stop()
		return s.enter()
	}
}

// leave gives up the place for as long as a takes.
func (s *slot) leave(a *active) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	if s.current != a || s.run.slow >= s.run.relay.spare {
		return
	}
	s.slow = true
	s.run.slow++
	s.setFailing(false)
	<-s.run.slots
}

// enter takes a place again after the batch, if there is one.
func (s *slot) enter() bool {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	s.current = nil
	if !s.slow {
		return true
	}
	select {
	case s.run.slots <- struct{}{}:
		s.slow = false
		s.run.slow--
		return true
	default:
		return false
	}
}

// close gives up the place for good.
func (s *slot) close() {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	if s.slow {
		s.run.slow--
		return
	}
	s.setFailing(false)
	<-s.run.slots
}

// healthyOnly tells whether the place is the last one, and not for a partition that failed the last
// time. Takes are in transactions, so no two of them ask at once.
func (s *slot) healthyOnly() bool {
	r := s.run
	r.mu.Lock()
	defer r.mu.Unlock()
	others := r.failing
	if s.failing {
		others--
	}
	last := cap(r.slots) > 1 && others >= cap(r.slots)-1
	r.refused = r.refused || last
	return last
}

// hold notes whether the batch that was taken is of a partition that failed the last time.
func (s *slot) hold(failing bool) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	s.setFailing(failing)
}

// setFailing is called with run.mu held. Partitions that healthyOnly has kept waiting may be taken
// when there is a place for one again.
func (s *slot) setFailing(failing bool) {
	r := s.run
	switch {
	case failing && !s.failing:
		r.failing++
	case !failing && s.failing:
		r.failing--
		if r.refused {
			r.refused = false
			r.waiter.Wake()
		}
	}
	s.failing = failing
}

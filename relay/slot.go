package relay

import "time"

const (
	defaultProcessors = 4

	// A batch that runs longer than slowAfter no longer counts against the default number of
	// processors. mostSlow is the maximum number of such batches.
	slowAfter = 20 * time.Millisecond
	mostSlow  = 60
)

// A slot tracks whether its processor counts toward Options.Processors. A processor that counts
// occupies a place.
//
// Two rules prevent unresponsive endpoints from blocking the others. First, partitions whose last
// attempt failed may occupy every place except the last. Second, by default, a batch that runs
// longer than slowAfter gives up its place, because an endpoint that has not failed yet may be
// unresponsive too.
type slot struct {
	run *run

	// Guarded by run.mu.
	current *active // batch whose handler is running
	slow    bool    // has given up its place; counted in run.slow
	failing bool    // handles a partition that failed on its last attempt; counted in run.failing
}

// begin records that the handler for a is starting. The caller must call end when the handler has
// returned. end returns false if the slot has given up its place and no place is free.
func (s *slot) begin(a *active) (end func() bool) {
	if s.run.relay.spare == 0 || a.handler.tx != nil { // a HandleTx handler holds the only writer, so another batch could not proceed anyway
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

// leave gives up the place while the slow batch a is still running.
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

// enter takes a place again after a slow batch. It returns false if no place is free.
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

// close releases the slot's place for good.
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

// healthyOnly reports whether the slot has the last place, which is reserved for healthy
// partitions. Batches are taken in write transactions, so two slots cannot both count as not being
// the last.
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

// hold records whether the current batch belongs to a partition that failed on its last attempt.
func (s *slot) hold(failing bool) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	s.setFailing(failing)
}

// setFailing requires run.mu. If the slot no longer holds a failing partition, it wakes the
// coordinator, because failing partitions that had to wait may now be taken.
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

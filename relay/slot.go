package relay

import "time"

const (
	defaultProcessors = 4

	// A batch that runs longer than slowAfter no longer counts against the default number of
	// processors. mostSlow is the maximum number of such batches.
	slowAfter = 20 * time.Millisecond
	mostSlow  = 60
)

// slot is the place of a processor among the Processors of a run.
//
// Two rules prevent unresponsive endpoints from blocking the others. First, partitions that failed
// at their last attempt may occupy all places except the last. Second, by default, a batch that runs
// longer than slowAfter leaves its place to another batch, because an endpoint that has not failed yet
// may be unresponsive too.
type slot struct {
	run *run

	// Guarded by run.mu.
	current *active // batch whose handler is running
	slow    bool    // has left its place; counted in run.slow
	failing bool    // holds a batch of a partition that failed at its last attempt; counted in run.failing
}

// begin records that the handler of a starts. The caller must call end when the handler has returned.
// end returns false if a has left its place and there is no free place for another batch.
func (s *slot) begin(a *active) (end func() bool) {
	if s.run.relay.spare == 0 || a.handler.tx != nil { // HandleTx holds the only writer, for which other batches would wait
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

// leave frees the place until a has ended.
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

// enter takes a place again after the batch. It returns false if no place is free.
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

// close frees the place permanently.
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

// healthyOnly reports whether only a healthy partition may be taken, because this is the last place.
// Batches are taken in write transactions, so two slots cannot both count as not being the last.
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

// hold records whether the current batch is of a partition that failed at its last attempt.
func (s *slot) hold(failing bool) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	s.setFailing(failing)
}

// setFailing requires run.mu. If the slot no longer holds a failing partition, it wakes the
// coordinator, because partitions that healthyOnly has kept waiting may be taken again.
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

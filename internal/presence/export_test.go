package presence

import "github.com/honker-go/honker/internal/store"

// Put and Drop return the rows of the write in progress.
func Put(r *Register) []store.Worker  { return r.taken.put }
func Drop(r *Register) []store.Worker { return r.taken.drop }

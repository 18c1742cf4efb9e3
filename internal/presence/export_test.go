package presence

import "github.com/honker-go/honker/internal/store"

// Put and Drop are what the write does that was taken.
func Put(r *Register) []store.Worker  { return r.taken.put }
func Drop(r *Register) []store.Worker { return r.taken.drop }

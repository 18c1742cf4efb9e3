package presence

import "github.com/honker-go/honker/internal/row"

// Put and Drop return the rows of the write in progress.
func Put(r *Register) []row.Worker  { return r.taken.put }
func Drop(r *Register) []row.Worker { return r.taken.drop }

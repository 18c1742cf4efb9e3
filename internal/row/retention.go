package row

// Retention is a row of _honkerx_retention.
type Retention struct {
	Topic    string
	MaxCount int64 // 0: no bound
	MaxAgeMS int64 // 0: no bound
}

// Pin is a consumer or a group that has still to see the events above Offset.
type Pin struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string // or a pattern
	Offset int64
}

// QueueRetention is how much of what a queue has finished is kept.
type QueueRetention struct {
	Queue string
	Done  Retention // no bound: none is kept
	Dead  Retention // no bound: all are kept
}

func (r Retention) Bounded() bool { return r.MaxCount > 0 || r.MaxAgeMS > 0 }

package pgstore

import (
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// Stores returns the stores that exist. The other fields are nil, so an engine cannot be built on them yet.
func Stores(s Schema) engine.Stores {
	return engine.Stores{
		Results:    Results{s},
		Schedules:  Schedules{s},
		Locks:      Locks{s},
		RateLimits: RateLimits{s},
		Inboxes:    Inboxes{s},
		Sweeps: engine.Sweeps{
			Received:   Inboxes{s}.sweepReceived(),
			Windows:    s.rowSweep("rate", whereWindowIsOver),
			OldWindows: s.rowSweep("rate", "window_start < $1"),
		},
		Wake: wake.Statements{
			Results: Results{s}.Decided,
			Locks:   Locks{s}.States,
			Soonest: Schedules{s}.Soonest,
		},
		Refused: Refused,
	}
}

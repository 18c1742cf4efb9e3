package backend

import (
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
)

// Stores returns the statements of a SQLite file.
func Stores() engine.Stores {
	return engine.Stores{
		Jobs:      store.Jobs{},
		Operators: store.Jobs{},
		Batches:   store.Batches{},
		Pauses:    store.Pauses{},
		Limits:    store.Limits{},
		Results:   store.Results{},
		Streams:   store.Streams{},
		Consumers: store.Consumers{},
		Retentions: struct {
			store.Retentions      // of topics
			store.QueueRetentions // of queues
		}{},
		Groups:        store.Groups{},
		Notifications: store.Notifications{},
		Schedules:     store.Schedules{},
		Locks:         store.Locks{},
		RateLimits:    store.RateLimits{},
		Workers:       store.Workers{},
		Minutes:       store.Minutes{},
		Audits:        store.Audits{},
		Files:         store.Files{},
		Problems:      store.Problems{},
		Dispatches:    store.Dispatches{},
		Inboxes:       store.Inboxes{},
		Relays:        store.RelayFamilies{},
		Done:          store.KeptDone,
		Dead:          store.KeptDead,
		Sweeps: engine.Sweeps{
			Results:    store.SweepResults,
			Windows:    store.SweepWindows,
			OldWindows: store.SweepOldWindows,
			Places:     store.SweepPlaces,
			Batches:    store.SweepBatches,
			Messages:   store.SweepMessages,
		},
		Refused: sqlite.IsConstraint,
	}
}

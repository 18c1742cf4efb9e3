package backend

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
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
		Sweeps: engine.Sweeps{
			Overdue:    store.SweepOverdue,
			Expired:    store.SweepExpired,
			Keys:       store.SweepKeys,
			Pauses:     store.SweepPauses,
			Places:     store.SweepPlaces,
			Fits:       store.SweepFits,
			Claims:     store.SweepClaims,
			Done:       store.SweepDone,
			Dead:       store.SweepDead,
			Results:    store.SweepResults,
			Batches:    store.SweepBatches,
			Sent:       store.SweepSent,
			Replies:    store.SweepReplies,
			Actors:     store.SweepActors,
			Received:   store.SweepReceived,
			Minutes:    store.SweepMinutes,
			Windows:    store.SweepWindows,
			OldWindows: store.SweepOldWindows,
			Messages:   store.SweepMessages,
			Surplus:    store.SurplusMessages,
		},
		Wake: wake.Statements{
			Queues:   store.Jobs{}.States,
			Results:  store.Results{}.Decided,
			Messages: wake.Log{Head: store.Notifications{}.Head, Since: store.Notifications{}.ChannelsSince},
			Events:   wake.Log{Head: store.Streams{}.Head, Since: store.Streams{}.TopicsSince},
			Groups:   store.Groups{}.States,
			Locks:    store.Locks{}.States,
			Soonest:  store.Schedules{}.Soonest,
			Relays:   relayStates,
		},
		Refused: sqlite.IsConstraint,
	}
}

func relayStates(ctx context.Context, q row.Querier, family string, w row.RelayWanted, now time.Time) ([]row.RelayState, error) {
	return store.Relays{Family: family}.States(ctx, q, w, now)
}

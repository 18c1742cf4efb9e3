package backend

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/store/dispatches"
	"github.com/honker-go/honker/internal/sqlite/store/flows"
	"github.com/honker-go/honker/internal/sqlite/store/inboxes"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/lists"
	"github.com/honker-go/honker/internal/sqlite/store/locks"
	"github.com/honker-go/honker/internal/sqlite/store/moves"
	"github.com/honker-go/honker/internal/sqlite/store/notify"
	"github.com/honker-go/honker/internal/sqlite/store/ops"
	"github.com/honker-go/honker/internal/sqlite/store/relays"
	"github.com/honker-go/honker/internal/sqlite/store/schedules"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
	"github.com/honker-go/honker/internal/wake"
)

// Stores returns the stores for a SQLite file.
func Stores() engine.Stores {
	return engine.Stores{
		Jobs: jobs.Jobs{},
		Operators: struct {
			jobs.Jobs
			lists.Lists
		}{},
		Batches:   jobs.Batches{},
		Pauses:    jobs.Pauses{},
		Limits:    jobs.Limits{},
		Results:   jobs.Results{},
		Streams:   streams.Streams{},
		Consumers: streams.Consumers{},
		Retentions: struct {
			streams.Retentions   // of topics
			jobs.QueueRetentions // of queues
		}{},
		Groups:        streams.Groups{},
		Notifications: notify.Notifications{},
		Schedules:     schedules.Schedules{},
		Locks:         locks.Locks{},
		RateLimits:    locks.RateLimits{},
		Workers:       ops.Workers{},
		Minutes:       ops.Minutes{},
		Audits:        ops.Audits{},
		Files:         ops.Files{},
		Sizes:         ops.Files{},
		Moves:         moves.Moves{},
		Problems:      ops.Problems{},
		Dispatches:    dispatches.Dispatches{},
		Inboxes:       inboxes.Inboxes{},
		Flows:         flows.Flows{},
		Relays:        relays.RelayFamilies{},
		Sweeps: engine.Sweeps{
			Overdue:    jobs.SweepOverdue,
			Expired:    jobs.SweepExpired,
			Keys:       jobs.SweepKeys,
			Pauses:     jobs.SweepPauses,
			Places:     jobs.SweepPlaces,
			Fits:       jobs.SweepFits,
			Claims:     streams.SweepClaims,
			Done:       jobs.SweepDone,
			Dead:       jobs.SweepDead,
			Results:    jobs.SweepResults,
			Batches:    jobs.SweepBatches,
			Sent:       dispatches.SweepSent,
			Replies:    dispatches.SweepReplies,
			Actors:     dispatches.SweepActors,
			Runs:       flows.SweepRuns,
			Received:   inboxes.SweepReceived,
			Minutes:    ops.SweepMinutes,
			Windows:    locks.SweepWindows,
			OldWindows: locks.SweepOldWindows,
			Messages:   notify.SweepMessages,
			Surplus:    notify.SurplusMessages,
		},
		Wake: wake.Statements{
			Queues:   jobs.Jobs{}.States,
			Results:  jobs.Results{}.Decided,
			Messages: wake.Log{Head: notify.Notifications{}.Head, Since: notify.Notifications{}.ChannelsSince},
			Events:   wake.Log{Head: streams.Streams{}.Head, Since: streams.Streams{}.TopicsSince},
			Groups:   streams.Groups{}.States,
			Locks:    locks.Locks{}.States,
			Soonest:  schedules.Schedules{}.Soonest,
			Relays:   relayStates,
		},
		Refused: sqlite.IsConstraint,
	}
}

func relayStates(ctx context.Context, q row.Querier, family string, w row.RelayWanted, now time.Time) ([]row.RelayState, error) {
	return relays.Relays{Family: family}.States(ctx, q, w, now)
}

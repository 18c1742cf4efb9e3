package pgstore

import (
	"github.com/honker-go/honker/honkerpg/internal/pgstore/dispatches"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/explains"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/flows"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/groups"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/inboxes"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/lists"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/locks"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/notify"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/ops"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/relays"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/schedules"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/streams"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/wake"
)

// operators implements engine.OperatorStore.
type operators struct {
	lists.Operators
	explains.Explains
}

// Stores returns the stores of a schema.
func Stores(s pgsql.Schema) engine.Stores {
	job, events, messages := jobs.Jobs{Schema: s}, streams.Streams{Schema: s}, notify.Notifications{Schema: s}
	return engine.Stores{
		Jobs:          job,
		Operators:     operators{lists.Operators{Schema: s}, explains.Explains{Schema: s}},
		Batches:       jobs.Batches{Schema: s},
		Results:       jobs.Results{Schema: s},
		Pauses:        jobs.Pauses{Schema: s},
		Limits:        jobs.Limits{Schema: s},
		Streams:       events,
		Consumers:     streams.Consumers{Schema: s},
		Retentions:    streams.Retentions{Schema: s},
		Groups:        groups.Groups{Schema: s},
		Notifications: messages,
		Schedules:     schedules.Schedules{Schema: s},
		Locks:         locks.Locks{Schema: s},
		RateLimits:    locks.RateLimits{Schema: s},
		Workers:       ops.Workers{Schema: s},
		Minutes:       ops.Minutes{Schema: s},
		Audits:        ops.Audits{Schema: s},
		Files:         noFile{},
		Sizes:         ops.Sizes{Schema: s},
		Servers:       ops.Servers{Schema: s},
		Problems:      ops.Problems{Schema: s},
		Dispatches:    dispatches.Dispatches{Schema: s},
		Inboxes:       inboxes.Inboxes{Schema: s},
		Flows:         flows.Flows{Schema: s},
		Relays:        relays.Families{Schema: s},

		Sweeps: sweeps(s),
		Wake: wake.Statements{
			Queues:   job.States,
			Results:  jobs.Results{Schema: s}.Decided,
			Messages: wake.Log{Head: messages.Head, Since: messages.ChannelsSince},
			Events:   wake.Log{Head: events.Head, Since: events.TopicsSince},
			Groups:   groups.Groups{Schema: s}.States,
			Locks:    locks.Locks{Schema: s}.States,
			Soonest:  schedules.Schedules{Schema: s}.Soonest,
			Relays:   relays.Families{Schema: s}.States,
		},
		Single:  true,
		Refused: pgsql.Refused,
	}
}

func sweeps(s pgsql.Schema) engine.Sweeps {
	job, messages := jobs.Jobs{Schema: s}, notify.Notifications{Schema: s}
	return engine.Sweeps{
		Overdue:    job.SweepOverdue(),
		Expired:    job.SweepExpired(),
		Keys:       job.SweepKeys(),
		Pauses:     jobs.Pauses{Schema: s}.Sweep(),
		Places:     jobs.Limits{Schema: s}.SweepPlaces(),
		Fits:       jobs.Limits{Schema: s}.SweepFits(),
		Claims:     groups.Groups{Schema: s}.Sweep(),
		Done:       job.SweepDone(),
		Dead:       job.SweepDead(),
		Results:    jobs.Results{Schema: s}.SweepResults(),
		Batches:    jobs.Batches{Schema: s}.Sweep(),
		Sent:       dispatches.Dispatches{Schema: s}.SweepSent(),
		Replies:    dispatches.Dispatches{Schema: s}.SweepReplies(),
		Actors:     dispatches.Dispatches{Schema: s}.SweepActors(),
		Runs:       flows.Flows{Schema: s}.Sweep(),
		Received:   inboxes.Inboxes{Schema: s}.Sweep(),
		Minutes:    ops.Minutes{Schema: s}.Sweep(),
		Windows:    s.RowSweep("rate", locks.WhereWindowIsOver),
		OldWindows: s.RowSweep("rate", "window_start < $1"),
		Messages:   messages.Old(),
		Surplus:    messages.Surplus,
	}
}

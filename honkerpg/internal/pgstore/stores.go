package pgstore

import (
	"github.com/honker-go/honker/honkerpg/internal/pgstore/groups"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/inboxes"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
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

// Stores returns the stores that exist. The other fields are nil, so an engine cannot be built on them yet.
func Stores(s pgsql.Schema) engine.Stores {
	return engine.Stores{
		Streams:       streams.Streams{Schema: s},
		Consumers:     streams.Consumers{Schema: s},
		Retentions:    streams.Retentions{Schema: s},
		Groups:        groups.Groups{Schema: s},
		Notifications: notify.Notifications{Schema: s},
		Batches:       jobs.Batches{Schema: s},
		Results:       jobs.Results{Schema: s},
		Schedules:     schedules.Schedules{Schema: s},
		Locks:         locks.Locks{Schema: s},
		RateLimits:    locks.RateLimits{Schema: s},
		Relays:        relays.Families{Schema: s},
		Workers:       ops.Workers{Schema: s},
		Minutes:       ops.Minutes{Schema: s},
		Audits:        ops.Audits{Schema: s},
		Inboxes:       inboxes.Inboxes{Schema: s},
		Sweeps: engine.Sweeps{
			Claims:     groups.Groups{Schema: s}.Sweep(),
			Batches:    jobs.Batches{Schema: s}.Sweep(),
			Keys:       jobs.Jobs{Schema: s}.SweepKeys(),
			Minutes:    ops.Minutes{Schema: s}.Sweep(),
			Received:   inboxes.Inboxes{Schema: s}.Sweep(),
			Windows:    s.RowSweep("rate", locks.WhereWindowIsOver),
			OldWindows: s.RowSweep("rate", "window_start < $1"),
			Messages:   notify.Notifications{Schema: s}.Old(),
			Surplus:    notify.Notifications{Schema: s}.Surplus,
		},
		Wake: wake.Statements{
			Messages: wake.Log{Head: notify.Notifications{Schema: s}.Head, Since: notify.Notifications{Schema: s}.ChannelsSince},
			Events:   wake.Log{Head: streams.Streams{Schema: s}.Head, Since: streams.Streams{Schema: s}.TopicsSince},
			Groups:   groups.Groups{Schema: s}.States,
			Results:  jobs.Results{Schema: s}.Decided,
			Locks:    locks.Locks{Schema: s}.States,
			Relays:   relays.Families{Schema: s}.States,
			Soonest:  schedules.Schedules{Schema: s}.Soonest,
		},
		Refused: pgsql.Refused,
	}
}

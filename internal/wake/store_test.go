package wake_test

import (
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/locks"
	"github.com/honker-go/honker/internal/sqlite/store/notify"
	"github.com/honker-go/honker/internal/sqlite/store/schedules"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
	"github.com/honker-go/honker/internal/wake"
)

func init() {
	wake.SetStatements(wake.Statements{
		Queues:   jobs.Jobs{}.States,
		Results:  jobs.Results{}.Decided,
		Messages: wake.Log{Head: notify.Notifications{}.Head, Since: notify.Notifications{}.ChannelsSince},
		Events:   wake.Log{Head: streams.Streams{}.Head, Since: streams.Streams{}.TopicsSince},
		Groups:   streams.Groups{}.States,
		Locks:    locks.Locks{}.States,
		Soonest:  schedules.Schedules{}.Soonest,
	})
}

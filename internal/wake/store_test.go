package wake_test

import (
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

func init() {
	wake.SetStatements(wake.Statements{
		Queues:   store.Jobs{}.States,
		Results:  store.Results{}.Decided,
		Messages: wake.Log{Head: store.Notifications{}.Head, Since: store.Notifications{}.ChannelsSince},
		Events:   wake.Log{Head: store.Streams{}.Head, Since: store.Streams{}.TopicsSince},
		Groups:   store.Groups{}.States,
		Locks:    store.Locks{}.States,
		Soonest:  store.Schedules{}.Soonest,
	})
}

package wake_test

import (
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

func init() {
	wake.SetStatements(wake.Statements{
		Jobs: store.Jobs{}, Results: store.Results{}, Notifications: store.Notifications{}, Streams: store.Streams{},
		Groups: store.Groups{}, Locks: store.Locks{}, Schedules: store.Schedules{},
		Relays: func(family string) wake.RelayStates { return store.Relays{Family: family} },
	})
}

package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// ActorInfo describes the actors of a type and their jobs, see package dispatch.
type ActorInfo struct {
	Type    string
	Alive   int          // actors that hold a name
	Paused  int          // live actors that claim no jobs, see PauseActors
	Waiting honker.Count // jobs in all queues of the type that are not due, ready or held
	Running honker.Count // jobs that are claimed, including expired claims
	Dead    honker.Count
	Oldest  time.Time // when the oldest ready job became ready; zero if there is none
}

// Actors returns the types of actors that have a live actor or jobs, sorted by type. Legacy queues of package dispatch
// are omitted. Counts are bounded and cached as in [Queues]. Actors never waits for the writer. It returns
// [honker.ErrInvalid] if db is nil.
func Actors(ctx context.Context, db *honker.DB) ([]ActorInfo, error) {
	types := map[string]*ActorInfo{}
	of := func(name string) *ActorInfo {
		if types[name] == nil {
			types[name] = &ActorInfo{Type: name}
		}
		return types[name]
	}
	names, err := Presences(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, p := range names {
		if p.Type != "" {
			of(p.Type).Alive++
			if p.Paused {
				of(p.Type).Paused++
			}
		}
	}
	stats, err := actorQueues(ctx, db)
	if err != nil {
		return nil, engine.Wrap("list actors", "", err)
	}
	for _, s := range stats {
		if name, ok := actorOfQueue(s.Queue); ok {
			of(name).add(s)
		}
	}
	all := make([]ActorInfo, 0, len(types))
	for _, a := range types {
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b ActorInfo) int { return strings.Compare(a.Type, b.Type) })
	return all, nil
}

// actorQueues returns the statistics of all queues if any of them belongs to actors. Programs without package dispatch
// pay only for a look at the names.
func actorQueues(ctx context.Context, db *honker.DB) ([]honker.QueueStats, error) {
	var queues []string
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		queues, err = s.Operators.Queues(ctx, q)
		return err
	})
	if err != nil || !slices.ContainsFunc(queues, func(queue string) bool { _, ok := actorOfQueue(queue); return ok }) {
		return nil, err
	}
	return statsOf(ctx, engine.Of(db), "")
}

func (a *ActorInfo) add(s honker.QueueStats) {
	sum := func(to *honker.Count, counts ...honker.Count) {
		for _, c := range counts {
			to.N, to.More = to.N+c.N, to.More || c.More
		}
	}
	sum(&a.Waiting, s.Ready, s.Scheduled, s.Held)
	sum(&a.Running, s.Running, s.Lapsed)
	sum(&a.Dead, s.Dead)
	if a.Oldest.IsZero() || !s.OldestReady.IsZero() && s.OldestReady.Before(a.Oldest) {
		a.Oldest = s.OldestReady
	}
}

// actorOfQueue returns the type of actor that a queue such as hero:q:work:type:osis:group:default belongs to. The prefix
// is the application's choice, and types cannot contain a colon.
func actorOfQueue(queue string) (name string, ok bool) {
	_, rest, ok := strings.Cut(queue, "q:work:type:")
	name, _, _ = strings.Cut(rest, ":")
	return name, ok && name != ""
}

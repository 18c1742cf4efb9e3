package honkerprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func streamMetrics(ctx context.Context, db *honker.DB, topics *names) ([]prometheus.Metric, error) {
	all, err := admin.Topics(ctx, db)
	head := largest(streamHead, 1)
	for _, t := range all {
		head.add(float64(t.Head), topics.label(t.Name))
	}
	return metricsOf(head), err
}

func consumerMetrics(ctx context.Context, db *honker.DB, consumers *names) ([]prometheus.Metric, error) {
	all, err := admin.Consumers(ctx, db)
	lag, late, capped := summed(consumerLag, 2), largest(consumerLate, 2), largest(consumerCap, 2)
	for _, c := range all {
		topic, name := consumers.pair(c.Topic, c.Name)
		lag.add(float64(c.Lag.N), topic, name)
		late.add(since(c.Behind, admin.Now(db)), topic, name)
		capped.add(is(c.Lag.More), topic, name)
	}
	return metricsOf(lag, late, capped), err
}

func groupMetrics(ctx context.Context, db *honker.DB, groups *names) ([]prometheus.Metric, error) {
	all, err := admin.Groups(ctx, db)
	lag, late, dead, capped := summed(groupLag, 2), largest(groupLate, 2), summed(groupDead, 2), largest(groupCap, 2)
	for _, g := range all {
		topic, name := groups.pair(g.Topic, g.Name)
		lag.add(float64(g.Lag.N), topic, name)
		late.add(since(g.Behind, admin.Now(db)), topic, name)
		dead.add(float64(g.Dead), topic, name)
		capped.add(is(g.Lag.More), topic, name)
	}
	return metricsOf(lag, late, dead, capped), err
}

// relayMetrics reads the queues of package relay.
func relayMetrics(ctx context.Context, db *honker.DB, relays *names) ([]prometheus.Metric, error) {
	all, err := admin.Relays(ctx, db)
	waiting, oldest, dead := summed(relayWaiting, 2), largest(relayOldest, 2), summed(relayDead, 2)
	blocked, tries := summed(relayBlocked, 2), largest(relayTries, 2)
	for _, r := range all {
		family, queue := relays.pair(r.Family, r.Queue)
		waiting.add(float64(r.Waiting), family, queue)
		oldest.add(since(r.Oldest, admin.Now(db)), family, queue)
		dead.add(float64(r.Dead), family, queue)
		blocked.add(float64(r.Blocked), family, queue)
		tries.add(float64(r.Attempts), family, queue)
	}
	return metricsOf(waiting, oldest, dead, blocked, tries), err
}

// actorMetrics reads the actors of package dispatch and their jobs.
func actorMetrics(ctx context.Context, db *honker.DB, types *names) ([]prometheus.Metric, error) {
	all, err := admin.Actors(ctx, db)
	alive, jobs, oldest := summed(actorsAlive, 1), summed(actorJobs, 2), largest(actorOldest, 1)
	for _, a := range all {
		name := types.label(a.Type)
		alive.add(float64(a.Alive), name)
		jobs.add(float64(a.Waiting.N), name, "waiting")
		jobs.add(float64(a.Running.N), name, "running")
		jobs.add(float64(a.Dead.N), name, "dead")
		oldest.add(since(a.Oldest, admin.Now(db)), name)
	}
	return metricsOf(alive, jobs, oldest), err
}

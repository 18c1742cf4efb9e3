package admin

import (
	"context"
	"fmt"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// stuckAttempts is the number of attempts after which a partition is stuck.
const stuckAttempts = 3

// relays reports partitions that do not get past their first message, and dead messages.
func (s *search) relays(ctx context.Context, _ []engine.QueueStats) error {
	stuck, err := s.engine.Stores.Relays.Failing(ctx, s.q, stuckAttempts)
	if err != nil {
		return err
	}
	for _, p := range stuck {
		n := honker.Count(p.Waiting)
		if s.now.Sub(p.Oldest) <= waitsLong {
			continue
		}
		s.add(Problem{Code: ProblemRelayStuck, Name: relayName(p.Family, p.Queue), Since: p.Oldest, N: n, Cause: firstLine(p.LastError),
			Actions: []Action{{Verb: ActionShowRelay, Queue: p.Queue, Name: p.Family}},
			Text: fmt.Sprintf("relay %s: partition %d has failed %s of a message, and %s it",
				relayName(p.Family, p.Queue), p.Partition, plural(p.Attempts, "attempt"), waitBehind(n))})
	}
	deaths, err := s.engine.Stores.Relays.Deaths(ctx, s.q, s.now.Add(-youngDeaths))
	if err != nil {
		return err
	}
	for _, d := range deaths {
		n := honker.Count(d.N)
		s.add(Problem{Code: ProblemRelayDead, Name: relayName(d.Family, d.Queue), Since: d.First, N: n, Cause: firstLine(d.Last.LastError),
			Actions: []Action{{Verb: ActionShowRelay, Queue: d.Queue, Name: d.Family}},
			Text: fmt.Sprintf("relay %s: %s died in the last hour, the last after %s in partition %d",
				relayName(d.Family, d.Queue), counted(n, "message"), plural(d.Last.Attempts, "attempt"), d.Last.Partition)})
	}
	return nil
}

// relayName names a relay queue, with its family if it has one.
func relayName(family, queue string) string {
	if family == "" {
		return queue
	}
	return family + "/" + queue
}

// waitBehind says how many messages wait for the first of n messages.
func waitBehind(n honker.Count) string {
	switch {
	case n == honker.Count{N: 1}:
		return "no other message waits behind"
	case n == honker.Count{N: 2}:
		return "1 message waits behind"
	}
	n.N--
	return counted(n, "message") + " wait behind"
}

//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/honker-go/honker/internal/testkit"
)

// checkRelay compares the file with the ledgers of the processes of a relay round.
func (s *storm) checkRelay() error {
	r := &reckoning{storm: s, noted: map[string]map[int64]int{}}
	if err := r.readLedgers(); err != nil {
		return err
	}
	history, err := testkit.ReadRelayHistory(filepath.Join(s.Dir, "ledger-*"))
	if err != nil {
		r.Add("order_violations", 1)
		return err
	}
	r.Add("redelivered", int64(history.Again))
	r.Add("leases_lost", int64(history.Lost))
	r.Add("commits", int64(len(r.noted[messageAcked])))
	r.countLost()
	ctx := context.Background()
	return errors.Join(
		r.delivered(history), r.inSendersOrder(history), r.progress(ctx, history),
		r.relayEffects(ctx, history), r.relayOrders(ctx, history), s.db.Check(ctx))
}

// delivered checks that each acknowledged message occurs exactly once in its partition.
func (r *reckoning) delivered(h *testkit.RelayHistory) error {
	found := map[int64]int{}
	for _, numbers := range h.Numbers {
		for _, n := range numbers {
			found[n]++
		}
	}
	r.Add("messages", int64(len(found)))
	return r.compare("message", r.noted[messageAcked], r.noted[messageMeant], found, true)
}

// inSendersOrder checks that the messages from each sender to a partition are in order.
func (r *reckoning) inSendersOrder(h *testkit.RelayHistory) error {
	for p, numbers := range h.Numbers {
		last := map[int64]int64{}
		for i, n := range numbers {
			if sender := n >> 24; n <= last[sender] {
				r.Add("order_violations", 1)
				return fmt.Errorf("%s/%d: message %d carries %d, after %d", p.Queue, p.Partition, i+1, n, last[sender])
			} else {
				last[sender] = n
			}
		}
	}
	return nil
}

// progress checks that each partition has finished exactly the messages that were handled.
func (r *reckoning) progress(ctx context.Context, h *testkit.RelayHistory) error {
	finished := map[testkit.RelayPartition]int64{}
	err := eachRow(ctx, r.db.SQL(), testkit.ListProcessed, func(row []any) {
		finished[testkit.RelayPartition{Queue: row[0].(string), Partition: int(row[1].(int64))}] = row[2].(int64)
	})
	for p, n := range finished {
		if given := int64(len(h.Numbers[p])); given != n {
			r.Add("order_violations", 1)
			err = errors.Join(err, fmt.Errorf("%s/%d: %d messages are finished, but %d were handled", p.Queue, p.Partition, n, given))
		}
	}
	return err
}

// relayEffects checks that HandleTx has written each message exactly once, except rejected
// messages, which must be dead letters.
func (r *reckoning) relayEffects(ctx context.Context, h *testkit.RelayHistory) error {
	effects, err := r.tally(ctx, `SELECT number FROM effects`)
	if err != nil {
		return err
	}
	dead, err := r.tally(ctx, testkit.DeadNumbers)
	if err != nil {
		return err
	}
	handled, rejected := map[int64]int{}, map[int64]int{}
	for p, numbers := range h.Numbers {
		for _, n := range numbers {
			switch {
			case isRejected(n):
				rejected[n]++
			case p.Queue == "tx":
				handled[n]++
			}
		}
	}
	r.Add("effects", int64(len(effects)))
	r.Add("dead", int64(len(dead)))
	return errors.Join(
		r.compare("effect of message", handled, handled, effects, true),
		r.compare("dead letter", rejected, rejected, dead, true))
}

// relayOrders checks that the messages committed together with an order exist.
func (r *reckoning) relayOrders(ctx context.Context, h *testkit.RelayHistory) error {
	orders, err := r.tally(ctx, `SELECT number FROM orders`)
	found := map[int64]bool{}
	for _, numbers := range h.Numbers {
		for _, n := range numbers {
			found[n] = true
		}
	}
	for n := range orders {
		if !found[n] || r.noted[doomed][n] > 0 {
			r.Add("phantoms", 1)
			return fmt.Errorf("order %d was committed: %v, its message was delivered: %v", n, r.noted[doomed][n] == 0, found[n])
		}
	}
	return err
}

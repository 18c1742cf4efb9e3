package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// share is scenario A: a customer's backlog does not delay the other customers.
func (s *service) share(ctx context.Context) ([]check, error) {
	sc, err := s.newScenario(ctx, "webhooks", honker.Limits{Running: 5, PerKey: 2})
	if err != nil {
		return nil, err
	}
	sc.say("A  %d webhooks of acme, then %d of bolt and of crux: 5 at a time, 2 of a customer", s.noisy, few)
	for i, tenant := range tenants {
		n := few
		if i == 0 {
			n = s.noisy
		}
		last, err := sc.enqueue(ctx, tenant, n)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			sc.ask(last, admin.ReasonKeyLimit)
		}
	}
	if err := sc.deliver(ctx); err != nil {
		return nil, err
	}
	acme, bolt := sc.endpoints.of["acme"], sc.endpoints.of["bolt"]
	before := acme.before(bolt.ended)
	return []check{
		{"A", "no more than 2 calls at a time of a customer", fmt.Sprint("acme ", acme.most, ", bolt ", bolt.most), acme.most <= 2 && bolt.most <= 2},
		{"A", "no more than 5 calls at a time of all", fmt.Sprint(sc.endpoints.all.most), sc.endpoints.all.most <= 5},
		{"A", "bolt is done before half of acme is", fmt.Sprintf("after %d of %d", before, acme.done()), 2*before < s.noisy && acme.done() == s.noisy},
		sc.answers("A"),
	}, nil
}

// before returns the number of calls that began before at.
func (m *meter) before(at time.Time) (n int) {
	for _, t := range m.calls {
		if t.Before(at) {
			n++
		}
	}
	return n
}

// rate is scenario B: both handles together stay within a rate limit.
func (s *service) rate(ctx context.Context) ([]check, error) {
	const every, burst, n = 40 * time.Millisecond, 3, 30
	sc, err := s.newScenario(ctx, "exports", honker.Limits{Rate: honker.Rate{N: 25, Per: time.Second, Burst: burst}})
	if err != nil {
		return nil, err
	}
	sc.say("B  %d exports: 25 a second, %d at once", n, burst)
	last, err := sc.enqueue(ctx, "bolt", n)
	if err != nil {
		return nil, err
	}
	sc.ask(last, admin.ReasonQueueRate)
	if err := sc.deliver(ctx); err != nil {
		return nil, err
	}
	calls, early := sc.endpoints.all.calls, 0
	slices.SortFunc(calls, time.Time.Compare)
	for i, at := range calls {
		if at.Sub(sc.began) < time.Duration(i+1-burst)*every-look/10 { // the two clocks differ a little
			early++
		}
	}
	took := calls[len(calls)-1].Sub(sc.began)
	found := fmt.Sprintf("%d in %v, %d too early", len(calls), took.Round(10*time.Millisecond), early)
	return []check{{"B", "no call comes earlier than the rate allows", found, len(calls) == n && early == 0}, sc.answers("B")}, nil
}

// slowDown is scenario C: an endpoint answers 429 for a while. Both handles stop calling it, and no
// job is lost.
func (s *service) slowDown(ctx context.Context) ([]check, error) {
	sc, err := s.newScenario(ctx, "webhooks", honker.Limits{Running: 5, PerKey: 2})
	if err != nil {
		return nil, err
	}
	crux, bolt := sc.endpoints.of["crux"], sc.endpoints.of["bolt"]
	crux.closedFor = 1500 * time.Millisecond
	sc.say("C  %d webhooks of bolt and of crux, whose endpoint refuses calls for %v", 2*few, crux.closedFor)
	for _, tenant := range []string{"bolt", "crux"} {
		last, err := sc.enqueue(ctx, tenant, 2*few)
		if err != nil {
			return nil, err
		}
		if tenant == "crux" {
			sc.ask(last, admin.ReasonPaused)
		}
	}
	if err := sc.deliver(ctx); err != nil {
		return nil, err
	}
	dead, err := sc.dead(ctx)
	if err != nil {
		return nil, err
	}
	found := fmt.Sprintf("%d refused, %d delivered, %d dead", crux.refused, crux.done(), dead)
	// Each pause lasts a second or two, and two calls may be in flight when it begins.
	seldom := crux.refused > 0 && crux.refused <= 6 && crux.done() == 2*few && dead == 0
	waited := crux.ended.Sub(bolt.ended)
	return []check{
		{"C", "crux is called rarely until its endpoint recovers", found, seldom},
		{"C", "bolt does not wait for it", fmt.Sprint("bolt is done ", waited.Round(10*time.Millisecond), " before"), bolt.done() == 2*few && waited > 0},
		sc.answers("C"),
	}, nil
}

// order is scenario D: a customer's jobs run in order even if some of them fail. Other customers
// are not held up.
func (s *service) order(ctx context.Context) ([]check, error) {
	sc, err := s.newScenario(ctx, "ledger", honker.Limits{InOrder: true})
	if err != nil {
		return nil, err
	}
	sc.say("D  %d entries of each customer, in order; the third of crux fails twice", few)
	crux := sc.endpoints.of["crux"]
	crux.fails[3] = 2
	for _, tenant := range tenants {
		if _, err := sc.enqueue(ctx, tenant, few); err != nil {
			return nil, err
		}
	}
	if err := sc.deliver(ctx); err != nil {
		return nil, err
	}
	c := check{"D", "each customer's entries come in order", "", true}
	for _, tenant := range tenants {
		e := sc.endpoints.of[tenant]
		c.found += fmt.Sprintf("%s %d in %d calls, ", tenant, e.done(), len(e.calls))
		c.ok = c.ok && e.done() == few && slices.IsSorted(e.delivered)
	}
	c.found = c.found[:len(c.found)-2]
	c.ok = c.ok && len(crux.calls) == few+2
	return []check{c}, nil
}

// batch is scenario E: each customer's invoices form a batch, and a summary follows them.
func (s *service) batch(ctx context.Context) ([]check, error) {
	sc, err := s.newScenario(ctx, "invoices", honker.Limits{PerKey: 2})
	if err != nil {
		return nil, err
	}
	sc.say("E  %d invoices of each customer, then a summary; the third of crux fails twice", few)
	sc.endpoints.of["crux"].fails[3] = 2
	for _, tenant := range tenants {
		if err := sc.invoice(ctx, tenant); err != nil {
			return nil, err
		}
	}
	if err := sc.deliver(ctx); err != nil {
		return nil, err
	}
	c := check{"E", "each summary comes after its invoices", "", true}
	for _, tenant := range tenants {
		got := sc.endpoints.of[tenant].delivered
		c.found += fmt.Sprintf("%s %d and %v, ", tenant, len(got)-1, got[len(got)-1:])
		c.ok = c.ok && len(got) == few+1 && got[few] == summary
	}
	c.found = c.found[:len(c.found)-2]
	return []check{c, sc.answers("E")}, nil
}

// summary is the number of the job that runs after the invoices.
const summary = 0

// invoice enqueues a customer's invoices and their summary in a single transaction.
func (sc *scenario) invoice(ctx context.Context, tenant string) error {
	return sc.dbs[0].Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		month, err := sc.dbs[0].NewBatchTx(ctx, tx, &honker.BatchOptions{Name: "invoices of " + tenant})
		if err != nil {
			return err
		}
		for i := range few {
			if _, err := sc.queue.EnqueueTx(ctx, tx, Webhook{tenant, i + 1}, honker.Key(tenant), honker.InBatch(month.ID)); err != nil {
				return err
			}
		}
		if err := month.SealTx(ctx, tx); err != nil {
			return err
		}
		last, err := sc.queue.EnqueueTx(ctx, tx, Webhook{tenant, summary}, honker.Key(tenant), honker.AfterBatch(month.ID))
		if tenant == "crux" {
			sc.ask(last, admin.ReasonWaitsFor)
		}
		return err
	})
}

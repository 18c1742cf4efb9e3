package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/honker-go/honker"
)

const (
	resolvers = 3

	sqlVisit = `INSERT INTO visits (country, requests) VALUES (?1, 1)
ON CONFLICT (country) DO UPDATE SET requests = requests + 1`
)

// groupOptions allow three more attempts than a temporary failure needs, because killing the
// process of a member also uses up an attempt.
func groupOptions(lease time.Duration) *honker.GroupOptions {
	return &honker.GroupOptions{Lease: lease, MaxAttempts: 5, Backoff: rest}
}

var rest = honker.Constant(300 * time.Millisecond)

// resolve runs a member of the group until ctx is done. Each member joins under a new name, since
// the name of a killed member remains taken until its lease expires.
func (f *feed) resolve(ctx context.Context) error {
	m, err := f.group.Join(ctx, "resolver-"+rand.Text()[:6])
	if err != nil {
		return err
	}
	for d, err := range m.All(ctx) {
		if err != nil && d != nil {
			continue // the event cannot be decoded and is already dead
		}
		if err == nil {
			err = f.resolveOne(context.WithoutCancel(ctx), d)
		}
		if err != nil {
			return errors.Join(err, m.Leave(context.WithoutCancel(ctx)))
		}
	}
	return m.Leave(context.WithoutCancel(ctx)) // releases its events to the other members at once
}

// resolveOne looks up the country before it opens a transaction, because the lookup is slow. The
// visit is counted in the transaction that acks the event, so it is counted exactly once.
func (f *feed) resolveOne(ctx context.Context, d *honker.Delivery[Request]) error {
	country, err := f.countryOf(d.Data, d.Attempts)
	if err != nil {
		err = d.Nack(ctx, err)
	} else {
		err = f.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, sqlVisit, country); err != nil {
				return err
			}
			return d.AckTx(ctx, tx)
		})
	}
	if errors.Is(err, honker.ErrClaimLost) {
		return nil // the lease has expired and another member has the event
	}
	return err
}

var (
	errTimeout = errors.New("the lookup timed out")
	errUnknown = errors.New("the address is unknown")
)

// poison is an address that cannot be resolved.
var poison = netip.MustParseAddr("203.0.113.250")

// countryOf simulates a request to a slow service. For one line in fifty the first attempt fails.
func (f *feed) countryOf(r Request, attempt int) (string, error) {
	time.Sleep(f.lookup)
	switch {
	case r.IP == poison:
		return "", fmt.Errorf("%v: %w", r.IP, errUnknown)
	case r.Line%50 == 0 && attempt == 1:
		return "", errTimeout
	}
	return country(r.IP), nil
}

var countries = [...]string{"AT", "BR", "CA", "DE", "EG", "FR", "IN", "JP", "KE", "NL", "PL", "US"}

// country returns a made-up country, because the addresses in the sample are reserved for
// documentation.
func country(ip netip.Addr) string {
	sum := 0
	for _, b := range ip.AsSlice() {
		sum += int(b) / 16
	}
	return countries[sum%len(countries)]
}

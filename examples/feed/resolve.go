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

// groupOptions leave an event three attempts more than any mishap that passes needs: an
// attempt is also spent when the process of a member is killed.
func groupOptions(lease time.Duration) *honker.GroupOptions {
	return &honker.GroupOptions{Lease: lease, MaxAttempts: 5, Backoff: rest}
}

var rest = honker.Constant(300 * time.Millisecond)

// resolve is one member of the group. Its name is new each time: that of a killed one is
// taken until its lease ends.
func (f *feed) resolve(ctx context.Context) error {
	m, err := f.group.Join(ctx, "resolver-"+rand.Text()[:6])
	if err != nil {
		return ended(ctx, err)
	}
	for d, err := range m.All(ctx) {
		if err != nil && d != nil {
			continue // it does not decode, and is a dead event already
		}
		if err == nil {
			err = f.resolveOne(context.WithoutCancel(ctx), d)
		}
		if err != nil {
			return errors.Join(err, m.Leave(context.WithoutCancel(ctx)))
		}
	}
	return m.Leave(context.WithoutCancel(ctx)) // what it holds goes to the others at once
}

// resolveOne finds out the country, which is slow and so not in a transaction, and then
// counts the visit and acks in one: each is counted once, by the member that resolved it.
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
		return nil // it took longer than the lease, and another member has the event
	}
	return err
}

var (
	errTimeout = errors.New("the lookup timed out")
	errUnknown = errors.New("the address is unknown")
)

// poison is an address that no attempt resolves.
var poison = netip.MustParseAddr("203.0.113.250")

// countryOf stands for a request to a slow service. One in fifty fails the first time.
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

// country is made up: the addresses of the sample have no owners.
func country(ip netip.Addr) string {
	sum := 0
	for _, b := range ip.AsSlice() {
		sum += int(b) / 16
	}
	return countries[sum%len(countries)]
}

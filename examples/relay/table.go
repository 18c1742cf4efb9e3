package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// row compares the messages sent to a customer with those in the customer's log.
type row struct {
	name      string
	sent      int64 // orders in the shop's table
	delivered int64 // according to the relay
	waiting   int64
	received  int64 // according to the customer, without duplicates
	inOrder   bool
	again     int
}

type table []row

func readTable(ctx context.Context, s *shop) (t table, err error) {
	standings, err := readStandings(ctx, s)
	if err != nil {
		return nil, err
	}
	for i, c := range s.customers {
		r := row{name: c.name, delivered: standings[i].delivered, waiting: standings[i].waiting}
		r.received, r.inOrder, r.again = c.received()
		if err := s.db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM orders WHERE customer = ?`, c.name).Scan(&r.sent); err != nil {
			return nil, err
		}
		t = append(t, r)
	}
	return t, nil
}

func (t table) print(w io.Writer) {
	fmt.Fprintf(w, "%-8s %6s %9s %9s %11s %8s\n", "customer", "sent", "received", "in order", "duplicates", "waiting")
	sent := int64(0)
	for _, r := range t {
		inOrder := "yes"
		if !r.inOrder {
			inOrder = "NO"
		}
		fmt.Fprintf(w, "%-8s %6d %9d %9s %11d %8d\n", r.name, r.sent, r.received, inOrder, r.again, r.waiting)
		sent += r.sent
	}
	switch {
	case t.err() != nil:
	case t.waiting() > 0:
		fmt.Fprintf(w, "\nInterrupted: %d of %d webhooks wait. Run again to continue.\n", t.waiting(), sent)
	default:
		fmt.Fprintf(w, "\nAll %d webhooks have arrived, in the order of each customer's orders.\n", sent)
	}
}

func (t table) waiting() (n int64) {
	for _, r := range t {
		n += r.waiting
	}
	return n
}

// err returns the mismatches. A webhook may be both received and waiting: a process that is killed
// after a delivery has not recorded it and will send it again.
func (t table) err() (err error) {
	for _, r := range t {
		switch {
		case !r.inOrder:
			err = errors.Join(err, fmt.Errorf("%s has received webhooks out of order", r.name))
		case r.delivered+r.waiting != r.sent:
			err = errors.Join(err, fmt.Errorf("%s: %d orders, but %d webhooks", r.name, r.sent, r.delivered+r.waiting))
		case r.received < r.delivered || r.received > r.sent:
			err = errors.Join(err, fmt.Errorf("%s has received %d webhooks, of %d sent and %d delivered", r.name, r.received, r.sent, r.delivered))
		}
	}
	return err
}

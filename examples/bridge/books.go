package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/honker-go/honker"
)

// progress counts the orders at each stage between the two nodes.
type progress struct {
	orders, received, packed, waiting int
}

// readProgress counts orders on both sides. The counts are not a single snapshot: the nodes keep
// running in between.
func (b *bridge) readProgress(ctx context.Context) (p progress, err error) {
	p.orders, err = number(ctx, b.shop, `SELECT count(*) FROM orders`)
	received, failed := number(ctx, b.warehouse, `SELECT count(*) FROM received`)
	packed, failedToo := number(ctx, b.warehouse, `SELECT count(*) FROM packed`)
	p.received, p.packed = received, packed
	info, failedInfo := newShop(nodeConfig{}, b.shop).orders.Info(ctx)
	for _, partition := range info.Partitions {
		p.waiting += int(partition.Waiting)
	}
	return p, errors.Join(err, failed, failedToo, failedInfo)
}

func number(ctx context.Context, db *honker.DB, query string) (n int, err error) {
	err = db.SQL().QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// line is a condition that must hold at the end, with the actual numbers.
type line struct {
	must, found string
	ok          bool
}

type books []line

// readBooks compares the two databases.
func (b *bridge) readBooks(ctx context.Context) (books, error) {
	counts := make(map[string]int)
	for name, c := range map[string]struct {
		db    *honker.DB
		query string
	}{
		"orders":     {b.shop, `SELECT count(*) FROM orders`},
		"shop cents": {b.shop, `SELECT coalesce(sum(cents), 0) FROM orders`},
		"received":   {b.warehouse, `SELECT count(*) FROM received`},
		"different":  {b.warehouse, `SELECT count(DISTINCT id) FROM received`},
		"cents":      {b.warehouse, `SELECT coalesce(sum(cents), 0) FROM received`},
		"packed":     {b.warehouse, `SELECT count(*) FROM packed`},
		"distinct":   {b.warehouse, `SELECT count(DISTINCT id) FROM packed`},
		"repeated":   {b.warehouse, `SELECT count(*) FROM repeated`},
		"disorder": {b.warehouse, `SELECT count(*) FROM (SELECT number, row_number() OVER (PARTITION BY customer ORDER BY place) AS place FROM received)
			WHERE number <> place`},
	} {
		n, err := number(ctx, c.db, c.query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		counts[name] = n
	}
	orders := counts["orders"]
	all := func(names ...string) bool {
		for _, name := range names {
			if counts[name] != orders {
				return false
			}
		}
		return true
	}
	return books{
		{"each order has arrived once", fmt.Sprintf("%d ordered, %d received, %d repeated without effect", orders, counts["received"], counts["repeated"]),
			all("received", "different")},
		{"each order was packed once", fmt.Sprintf("%d packed", counts["packed"]), all("packed", "distinct")},
		{"in the order of each customer", fmt.Sprintf("%d out of order", counts["disorder"]), counts["disorder"] == 0},
		{"the sums are the same", fmt.Sprintf("%s and %s", money(counts["shop cents"]), money(counts["cents"])), counts["shop cents"] == counts["cents"]},
	}, errors.Join(b.shop.Check(ctx), b.warehouse.Check(ctx))
}

func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// print writes the table and returns an error if the books do not balance.
func (all books) print(w io.Writer) (err error) {
	fmt.Fprintf(w, "\n%-30s %s\n", "check", "found")
	for _, l := range all {
		verdict := "ok"
		if !l.ok {
			verdict = "FAILED"
			err = errors.Join(err, fmt.Errorf("%s, but: %s", l.must, l.found))
		}
		fmt.Fprintf(w, "%-30s %-58s %s\n", l.must, l.found, verdict)
	}
	return err
}

package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
)

// Order is the input of the flow "order".
type Order struct {
	ID, Item string
	Total    int
}

// order takes an order from the payment to the parcel. Whatever was done is undone if the order is refused or lost.
func (s *shop) order(ctx context.Context, o Order) (parcel string, err error) {
	charge, err := flow.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return s.bank.charge(flow.Key(ctx, "charge"), o.Total) // may run again after a crash; the bank knows the key
	})
	if err != nil {
		return "", err
	}
	flow.Undo(ctx, "charge", func(context.Context) error { return s.bank.refund(charge) })

	_, err = flow.StepTx(ctx, "reserve", func(ctx context.Context, tx *sql.Tx) (bool, error) {
		_, err := tx.ExecContext(ctx, `UPDATE stock SET n = n - 1 WHERE item = ?`, o.Item) // takes effect exactly once
		return true, err
	})
	if err != nil {
		return "", err
	}
	flow.Undo(ctx, "reserve", func(ctx context.Context) error { return s.giveBack(ctx, o) })

	if o.Total > 100 {
		ok, err := flow.Wait[bool](ctx, "approved", 72*time.Hour) // holds no worker
		if err != nil {
			return "", err
		}
		if !ok {
			return "", honker.Reject(fmt.Errorf("%s was refused", o.ID))
		}
	}
	return flow.Call(ctx, "ship", s.shipping, o)
}

// ship is the flow "ship", which an order calls.
func (s *shop) ship(ctx context.Context, o Order) (parcel string, err error) {
	if err := flow.Sleep(ctx, "packing", s.packing); err != nil {
		return "", err
	}
	if o.Item == "vase" {
		return "", honker.Reject(fmt.Errorf("the %s of %s has broken", o.Item, o.ID))
	}
	return flow.StepTx(ctx, "label", func(ctx context.Context, tx *sql.Tx) (string, error) {
		parcel := "parcel of " + o.ID
		_, err := tx.ExecContext(ctx, `INSERT INTO parcels VALUES (?)`, parcel)
		return parcel, err
	})
}

package main

import (
	"encoding/json"
	"regexp"
	"time"
)

// Order is a line of the input and the payload of its job.
type Order struct {
	ID         string    `json:"id"`
	Customer   string    `json:"customer"`
	Email      string    `json:"email"`
	Currency   string    `json:"currency"`
	Items      []Item    `json:"items"`
	TotalCents int       `json:"total_cents"`
	PlacedAt   time.Time `json:"placed_at"`
}

// Item is an order line.
type Item struct {
	SKU        string `json:"sku"`
	Qty        int    `json:"qty"`
	PriceCents int    `json:"price_cents"`
}

// refusal is the reason for rejecting an order. Two more refusals are the names of constraints in
// schema.sql.
type refusal string

const (
	malformed   refusal = "malformed line"
	wrongTotal  refusal = "total does not match"
	duplicateID refusal = "duplicate id"
)

func (r refusal) Error() string { return string(r) }

// orderID is strict because the id becomes a file name.
var orderID = regexp.MustCompile(`^ord-[0-9]{6}$`)

// parseOrder parses a line and runs the checks that need no database.
func parseOrder(line string) (Order, error) {
	var o Order
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return o, malformed
	}
	if !orderID.MatchString(o.ID) || len(o.Items) == 0 {
		return o, malformed
	}
	if o.sum() != o.TotalCents {
		return o, wrongTotal
	}
	return o, nil
}

func (o Order) sum() int {
	cents := 0
	for _, item := range o.Items {
		cents += item.Qty * item.PriceCents
	}
	return cents
}

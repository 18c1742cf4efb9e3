package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/honker-go/honker"
)

const (
	receiptQueue  = "receipts"
	receiptSuffix = ".txt"
	draftPattern  = ".draft-*"
)

// receiptOptions allow two more attempts than a temporary failure needs, because killing the
// process also uses up an attempt.
var receiptOptions = &honker.QueueOptions{
	MaxAttempts: 5,
	Backoff:     honker.Constant(time.Second),
}

// receipts is the directory with the receipts, a file per order.
type receipts struct {
	dir   string
	meter *meter
}

// handle writes the receipt of an order. A kill between the write and the ack leads to a second
// delivery, which overwrites the file with the same content.
func (r *receipts) handle(_ context.Context, job *honker.Job[Order]) error {
	if job.Attempts == 1 {
		r.meter.started(job.Args.ID)
	}
	if err := mishap(job.Args.ID, job.Attempts); err != nil {
		return err
	}
	return r.write(job.Args)
}

var (
	errJam       = errors.New("the printer is jammed")
	errNoAddress = errors.New("the customer has no address")
)

// mishap simulates failures. They depend on the order id only and are therefore the same in every
// run: of 1,000 orders, four are rejected, four always fail, and 60 fail once or twice.
func mishap(id string, attempt int) error {
	hash := fnv.New32a()
	hash.Write([]byte(id))
	switch fate := hash.Sum32() % 1000; {
	case fate < 4:
		return honker.Reject(errNoAddress)
	case fate < 8, fate < 28 && attempt <= 2, fate < 68 && attempt == 1:
		return errJam
	}
	return nil
}

// write creates the file under a temporary name and renames it, so that a kill never leaves a
// partial receipt. To survive a power failure, it would also have to sync the file and the
// directory.
func (r *receipts) write(o Order) error {
	draft, err := os.CreateTemp(r.dir, draftPattern)
	if err != nil {
		return err
	}
	_, err = draft.Write(render(o))
	if err = errors.Join(err, draft.Close()); err == nil {
		err = os.Rename(draft.Name(), r.path(o.ID))
	}
	if err != nil {
		return errors.Join(err, os.Remove(draft.Name()))
	}
	return nil
}

func (r *receipts) path(id string) string { return filepath.Join(r.dir, id+receiptSuffix) }

// render must depend on the order alone, so that a second delivery writes the same text.
func render(o Order) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Receipt for order %s\n%s\n%s <%s>\n\n", o.ID, o.PlacedAt.Format(time.RFC1123), o.Customer, o.Email)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, item := range o.Items {
		fmt.Fprintf(w, "%d x\t%s\t%s\t\n", item.Qty, item.SKU, money(item.Qty*item.PriceCents))
	}
	w.Flush()
	fmt.Fprintf(&b, "\nTotal %s %s\n", money(o.TotalCents), o.Currency)
	return b.Bytes()
}

func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// list returns the ids of the orders that have a receipt.
func (r *receipts) list() (map[string]bool, error) {
	files, err := os.ReadDir(r.dir)
	ids := make(map[string]bool, len(files))
	for _, file := range files {
		if id, ok := strings.CutSuffix(file.Name(), receiptSuffix); ok {
			ids[id] = true
		}
	}
	return ids, err
}

// sweep removes drafts left behind by killed processes. Call it only while no process is writing
// receipts.
func (r *receipts) sweep() error {
	drafts, err := filepath.Glob(filepath.Join(r.dir, draftPattern))
	for _, draft := range drafts {
		err = errors.Join(err, os.Remove(draft))
	}
	return err
}

package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// SizeInfo tells how the bytes of a database are used. All sizes are estimates.
type SizeInfo struct {
	Tables []TableBytes // honker's tables, largest first
	Other  int64        // bytes of all other tables with their indexes
	Topics []PartBytes  // largest first
	Queues []PartBytes  // jobs of each state, largest first
}

// TableBytes is the size of a table.
type TableBytes struct {
	Name    string
	Rows    int64
	Bytes   int64 // without indexes
	Indexes int64 // bytes
}

// PartBytes is the space that the events of a topic, or jobs of a queue, take with their part of the indexes.
type PartBytes struct {
	Name  string
	State honker.State // of jobs: StateDead, StateDone, or StatePending for all live jobs; "" for events
	Rows  int64
	Bytes int64
}

// Sizes estimates how the bytes of a database are used. It reads a bounded number of pages, which takes some
// milliseconds also for a large database. In a file it counts the pages of each table, without the pages of large payloads,
// which it estimates from a sample. A server tells the sizes of tables. The shares of topics and queues are estimated
// from a sample of about 200 pages, and a small topic or queue may be missing. Rows are estimates too.
//
// Sizes never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func Sizes(ctx context.Context, db *honker.DB) (*SizeInfo, error) {
	var all row.Sizes
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		all, err = s.Sizes.Sizes(ctx, q)
		return err
	})
	if err != nil {
		return nil, engine.Wrap("estimate sizes", "", err)
	}
	return sizesOf(all), nil
}

func sizesOf(all row.Sizes) *SizeInfo {
	info := &SizeInfo{Other: all.Other}
	for _, t := range all.Tables {
		info.Tables = append(info.Tables, TableBytes(t))
	}
	for _, p := range all.Parts {
		state := stateOfTable(p.Table)
		part := PartBytes{Name: p.Name, State: state, Rows: p.Rows, Bytes: p.Bytes}
		if state == "" {
			info.Topics = append(info.Topics, part)
		} else {
			info.Queues = append(info.Queues, part)
		}
	}
	slices.SortStableFunc(info.Tables, func(a, b TableBytes) int { return cmp.Compare(b.Bytes+b.Indexes, a.Bytes+a.Indexes) })
	for _, parts := range [][]PartBytes{info.Topics, info.Queues} {
		slices.SortStableFunc(parts, func(a, b PartBytes) int { return cmp.Compare(b.Bytes, a.Bytes) })
	}
	return info
}

// largest returns the largest part that a retention bounds. ok is false if there is none.
func (i *SizeInfo) largest() (part PartBytes, ok bool) {
	for _, p := range slices.Concat(i.Topics, i.Queues) {
		if p.State != honker.StatePending && p.Bytes > part.Bytes {
			part, ok = p, true
		}
	}
	return part, ok
}

// text describes the part, such as "topic orders takes 9.1 GiB".
func (p PartBytes) text() string {
	size := FormatSize(p.Bytes)
	if p.State == "" {
		return "topic " + p.Name + " takes " + size
	}
	return fmt.Sprintf("the %s jobs of queue %s take %s", p.State, p.Name, size)
}

// bound returns the action that bounds the part.
func (p PartBytes) bound() Action {
	if p.State == "" {
		return Action{Verb: ActionSetRetention, Topic: p.Name}
	}
	return Action{Verb: ActionSetRetention, Queue: p.Name, Phase: honker.Phase(p.State)}
}

// stateOfTable returns the state of the jobs in a table of either database, or "" for the table of events.
func stateOfTable(name string) honker.State {
	switch {
	case strings.HasSuffix(name, "dead"):
		return honker.StateDead
	case strings.HasSuffix(name, "done"):
		return honker.StateDone
	case strings.HasSuffix(name, "live"), name == "job":
		return honker.StatePending
	}
	return ""
}

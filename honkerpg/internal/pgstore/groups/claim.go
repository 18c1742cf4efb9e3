package groups

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/streams"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

const (
	// lapsedLimit is the maximum number of lapsed leases that a single claim settles.
	lapsedLimit = 1000

	// pageBytes limits the payloads that a single read of events returns.
	pageBytes = 1 << 20
)

// claim is the state of a group in the transaction that claims for it. The transaction holds the group's lock.
type claim struct {
	selection row.Selection
	cursor    int64
	token     int64
	lapsed    int64 // lapsed leases that could be settled; -1: others settle all of them
	settled   int64
	dead      []row.GroupDeath
}

const (
	sqlBeginClaim = `SELECT selected, selection, begins, drawn, lapsed, settled, died."offset", died.attempts
FROM honker.group_begin($1, $2, $3, $4, $5) LEFT JOIN LATERAL unnest(dead, dead_attempts) died ("offset", attempts) ON true`

	sqlEndClaim = `SELECT "offset", topic, key, payload, created_at, attempts FROM honker.group_end($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
)

// Claim implements engine.GroupStore. It needs a transaction, whose other statements see the claims of others that came
// before it. A lapsed lease that an open transaction is settling is left to a later claim.
func (s Groups) Claim(ctx context.Context, q row.Querier, c row.GroupClaim, now time.Time) (out row.GroupClaimed, err error) {
	g, err := s.begin(ctx, q, c, now)
	if err != nil {
		return row.GroupClaimed{}, err
	}
	events, cursor, more, err := s.fresh(ctx, q, g, c.N)
	if err != nil {
		return row.GroupClaimed{}, err
	}
	for _, e := range events {
		out.Events = append(out.Events, row.Delivery{Event: e, Token: g.token, Attempts: 1})
	}
	gone, again, err := s.end(ctx, q, c, g, &out, cursor, more, now)
	if err != nil {
		return row.GroupClaimed{}, err
	}
	out.Dead, out.More = g.dead, more || again || len(out.Events) == c.N
	if len(out.Events) > 0 || gone > 0 || g.settled > 0 || cursor > g.cursor {
		return out, nil
	}
	return row.GroupClaimed{}, g.idle()
}

// idle returns an error if a claim has changed nothing although there are lapsed leases: a caller that asked again would
// loop. Events that were published or returned during the claim are found by the next.
func (g claim) idle() error {
	switch {
	case g.lapsed < 0:
		return fmt.Errorf("%w: an open transaction settles the events whose leases have lapsed", engine.ErrBusy)
	case g.lapsed > 0:
		return row.ErrStuck
	}
	return nil
}

// begin locks the group and settles lapsed leases.
func (s Groups) begin(ctx context.Context, q row.Querier, c row.GroupClaim, now time.Time) (g claim, err error) {
	var topic, filter sql.NullString
	var cursor, token, lapsed, settled sql.NullInt64
	err = pgsql.Each(ctx, q, s.SQL(sqlBeginClaim), func(r *sql.Rows) error {
		var offset, attempts sql.NullInt64
		err := r.Scan(&topic, &filter, &cursor, &token, &lapsed, &settled, &offset, &attempts)
		if offset.Valid {
			g.dead = append(g.dead, row.GroupDeath{Offset: offset.Int64, Attempts: attempts.Int64})
		}
		return err
	}, c.Member.Group, c.MaxAttempts, lapsedLimit, row.ReasonExhausted, pgsql.Stamp(now))
	if err == nil && !topic.Valid {
		err = fmt.Errorf("group %w", row.ErrNotFound)
	}
	if err != nil {
		return g, err
	}
	g.cursor, g.token, g.lapsed, g.settled = cursor.Int64, token.Int64, lapsed.Int64, settled.Int64
	g.selection.Topic = topic.String
	g.selection.Filter, err = streams.ParseFilter(filter.String)
	return g, err
}

// fresh reads events that no member has received yet, and returns them and the group's new cursor. more means that there
// may be others further on. A sparse selection is first read over a few offsets, because the next events usually match,
// and then over the many that a page may scan.
func (s Groups) fresh(ctx context.Context, q row.Querier, g claim, n int) (events []row.Event, cursor int64, more bool, err error) {
	store := streams.Streams{Schema: s.Schema}
	read := row.EventRead{Selection: g.selection, After: g.cursor, Through: row.Unbounded, Limit: n}
	if !read.Sparse() {
		page, err := store.Read(ctx, q, read, nil)
		return page.Events, page.Next, full(page.Events, n), err
	}
	head, err := s.head(ctx, q, g.selection)
	if err != nil || head <= g.cursor {
		return nil, g.cursor, false, err
	}
	// Events up to head are visible, so the cursor passes no event that appears later.
	read.Scanned = min(head, g.cursor+4*int64(n)+16)
	page, err := store.Read(ctx, q, read, nil)
	if err != nil || full(page.Events, n) || page.Next >= head {
		return page.Events, page.Next, full(page.Events, n) || page.Next < head, err
	}
	read.After, read.Scanned, read.Limit = page.Next, 0, n-len(page.Events)
	page, err = store.Read(ctx, q, read, page.Events)
	return page.Events, page.Next, full(page.Events, n) || page.Next < head && page.Next > read.After, err
}

// full reports whether a read of up to n events may have stopped before the last.
func full(events []row.Event, n int) bool {
	size := 0
	for _, e := range events {
		size += len(e.Payload)
	}
	return len(events) >= n || size >= pageBytes
}

// end leases the new events in out and, unless more new events may follow, returned events, which it appends. gone is the
// number of claims that it has deleted because their events are gone from the stream. again means that there may be
// other returned events.
func (s Groups) end(ctx context.Context, q row.Querier, c row.GroupClaim, g claim, out *row.GroupClaimed, cursor int64, more bool, now time.Time) (gone int, again bool, err error) {
	fresh := make([]int64, len(out.Events))
	for i, e := range out.Events {
		fresh[i] = e.Offset
	}
	room, size, back := 0, 0, 0
	if !more {
		room = c.N - len(fresh)
	}
	err = pgsql.Each(ctx, q, s.SQL(sqlEndClaim), func(r *sql.Rows) error {
		d := row.Delivery{Token: g.token}
		var topic, key, payload sql.NullString
		var created sql.NullTime
		if err := r.Scan(&d.Offset, &topic, &key, &payload, &created, &d.Attempts); err != nil {
			return err
		}
		if back++; !topic.Valid {
			gone++
			return nil
		}
		d.Topic, d.Key, d.Payload, d.CreatedAt = topic.String, key.String, payload.String, pgsql.Instant(created)
		size += len(d.Payload)
		out.Events = append(out.Events, d)
		return nil
	}, c.Member.Group, g.token, c.Member.Instance, pgsql.StampUp(c.Expires), pgsql.Stamp(now), g.cursor, cursor, fresh, room, pageBytes)
	if pgsql.Dropped(err) {
		err = fmt.Errorf("%w: %w", row.ErrStuck, err)
	}
	return gone, room > 0 && (back == room || size >= pageBytes), err
}

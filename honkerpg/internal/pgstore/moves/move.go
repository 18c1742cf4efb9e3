// Package moves contains the statements that take in the parcels of a file.
package moves

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Moves contains the statements for the table move. Those of a Holder return ErrLost if another mover has begun since.
type Moves struct{ pgsql.Schema }

// Holder is a mover.
type Holder struct {
	Source, Token string
	Lease         time.Duration
}

func (h Holder) until(now time.Time) time.Time { return pgsql.StampUp(now.Add(h.Lease)) }

const (
	sqlTarget    = `SELECT value FROM honker.meta WHERE key = 'move_id'`
	sqlNewTarget = `INSERT INTO honker.meta (key, value) VALUES ('move_id', $1) ON CONFLICT (key) DO NOTHING`
	sqlBegin     = `SELECT honker.move_begin($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	sqlHold      = `SELECT (honker.move_hold($1, $2, $3)).source IS NOT NULL`
	sqlEnd       = `SELECT honker.move_end($1, $2, $3)`
	sqlUsed      = `SELECT EXISTS (SELECT FROM honker.job) OR EXISTS (SELECT FROM honker.dead) OR EXISTS (SELECT FROM honker.event)
  OR EXISTS (SELECT FROM honker.batch) OR EXISTS (SELECT FROM honker.pending)`
	sqlBegun = `SELECT EXISTS (SELECT FROM honker.move WHERE source = $1)`
)

// Target returns the identity of the schema, or "" if no move has led to it.
func (s Moves) Target(ctx context.Context, q row.Querier) (id string, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlTarget), nil, &id)
	return id, err
}

// SetTarget gives the schema an identity if it has none, and returns it.
func (s Moves) SetTarget(ctx context.Context, q row.Querier, id string) (string, error) {
	if _, err := q.ExecContext(ctx, s.SQL(sqlNewTarget), id); err != nil {
		return "", err
	}
	return s.Target(ctx, q)
}

// Fits reports whether a move of the source has begun, and whether the schema is in use.
func (s Moves) Fits(ctx context.Context, q row.Querier, source string) (begun, used bool, err error) {
	if _, err = pgsql.One(ctx, q, s.SQL(sqlBegun), []any{source}, &begun); err != nil {
		return false, false, err
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlUsed), nil, &used)
	return begun, used, err
}

// State is the outcome of Begin, as honker.move_begin returns it.
type State string

// The states.
const (
	Held  State = ""      // the move may go on
	Busy  State = "busy"  // another mover runs
	Older State = "older" // the file is a copy from before its last parcels
	Used  State = "used"  // the schema has rows of its own
)

// Begin begins a move or continues it.
func (s Moves) Begin(ctx context.Context, q row.Querier, h Holder, from row.MoveSource, intoUsed bool, now time.Time) (state State, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlBegin), []any{h.Source, h.Token, h.until(now), from.Parcel, from.Jobs, from.Batch, from.Event, intoUsed,
		pgsql.Stamp(now)}, &state)
	return state, err
}

// Hold prolongs the lease of a mover.
func (s Moves) Hold(ctx context.Context, q row.Querier, h Holder, now time.Time) error {
	var ok bool
	_, err := pgsql.One(ctx, q, s.SQL(sqlHold), []any{h.Source, h.Token, h.until(now)}, &ok)
	return lost(ok, err)
}

// End ends the lease of a mover.
func (s Moves) End(ctx context.Context, q row.Querier, h Holder, now time.Time) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlEnd), h.Source, h.Token, pgsql.Stamp(now))
	return err
}

// ErrLost reports that another mover has begun since.
var ErrLost = fmt.Errorf("%w: another process has begun to move this file", engine.ErrBusy)

// lost returns ErrLost unless the mover still holds the move.
func lost(ok bool, err error) error {
	if err == nil && !ok {
		err = ErrLost
	}
	return err
}

// Arrived describes a parcel that was taken in.
type Arrived struct {
	Jobs, Dead, Batches, Schedules int64
	Messages, Letters, Late        int64 // of a relay
	Relay                          string
	Queues                         []string
	Lost                           []Lost
}

// Lost is a job whose unique key is held by a job of the schema.
type Lost struct {
	Queue, Key string
	ID, By     int64 // the job of the file, and the job that holds the key
	Dropped    bool  // otherwise it is kept without its key
}

const sqlTakeIn = `SELECT honker.take_in($1, $2, $3, $4, $5::text::json, $6)`

// TakeIn inserts the jobs of a parcel. It does nothing if the parcel has arrived before.
func (s Moves) TakeIn(ctx context.Context, q row.Querier, h Holder, p row.Parcel, now time.Time) (a Arrived, err error) {
	var text sql.NullString
	if _, err := pgsql.One(ctx, q, s.SQL(sqlTakeIn), []any{h.Source, h.Token, h.until(now), p.N, p.Text, pgsql.Stamp(now)}, &text); err != nil {
		return a, err
	}
	if err := lost(text.Valid, nil); err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(text.String), &a); err != nil {
		return a, err
	}
	pgsql.Leave(q, pgsql.Resolve|pgsql.Planned)
	return a, nil
}

const (
	sqlTakeKeys     = `SELECT honker.take_keys($1, $2, $3, $4::text::json, $5, $6)`
	sqlFreeKeys     = `SELECT honker.free_keys($1, $2)`
	sqlTakeEvents   = `SELECT through, late FROM honker.take_events($1, $2, $3, $4, $5, $6::text::json, $7)`
	sqlTakeReaders  = `SELECT honker.take_readers($1, $2, $3, $4::text::json, $5)`
	sqlTakeSettings = `SELECT honker.take_settings($1::text::json)`
	sqlTakeReceived = `SELECT honker.take_received($1::text::json)`
	sqlThrough      = `SELECT through FROM honker.move_topic WHERE source = $1 AND topic = $2`
)

// Reserve takes unique keys for jobs of the file until a time.
func (s Moves) Reserve(ctx context.Context, q row.Querier, h Holder, keys string, until, now time.Time) error {
	var ok bool
	_, err := pgsql.One(ctx, q, s.SQL(sqlTakeKeys), []any{h.Source, h.Token, h.until(now), keys, pgsql.Stamp(until), pgsql.Stamp(now)}, &ok)
	return lost(ok, err)
}

// Free gives up the reservations that were not renewed until a time.
func (s Moves) Free(ctx context.Context, q row.Querier, h Holder, until time.Time) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlFreeKeys), h.Source, pgsql.Stamp(until))
	return err
}

// Through returns the offset in the file of the last event of a topic that was copied.
func (s Moves) Through(ctx context.Context, q row.Querier, source, topic string) (offset int64, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlThrough), []any{source, topic}, &offset)
	return offset, err
}

// Events copies events of a topic, and returns how many of them had to get new offsets.
func (s Moves) Events(ctx context.Context, q row.Querier, h Holder, topic string, p row.MovePart, now time.Time) (late int64, err error) {
	var through, n sql.NullInt64
	_, err = pgsql.One(ctx, q, s.SQL(sqlTakeEvents), []any{h.Source, h.Token, h.until(now), topic, p.Last, p.Text, pgsql.Stamp(now)}, &through, &n)
	if err == nil {
		pgsql.Leave(q, pgsql.Number)
	}
	return n.Int64, lost(through.Valid, err)
}

// Readers copies the places of readers, and returns the readers that have moved on in the schema.
func (s Moves) Readers(ctx context.Context, q row.Querier, h Holder, readers string, now time.Time) (own []string, err error) {
	var text sql.NullString
	if _, err := pgsql.One(ctx, q, s.SQL(sqlTakeReaders), []any{h.Source, h.Token, h.until(now), readers, pgsql.Stamp(now)}, &text); err != nil {
		return nil, err
	}
	if err := lost(text.Valid, nil); err != nil {
		return nil, err
	}
	return own, json.Unmarshal([]byte(text.String), &own)
}

// Settings copies pauses, limits and retentions of queues and topics that have none in the schema.
func (s Moves) Settings(ctx context.Context, q row.Querier, settings string) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlTakeSettings), settings)
	return err
}

// Received copies messages that an inbox has received.
func (s Moves) Received(ctx context.Context, q row.Querier, received string) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlTakeReceived), received)
	return err
}

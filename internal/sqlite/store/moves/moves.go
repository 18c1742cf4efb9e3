// Package moves contains the statements that take jobs, events and settings out of a file for another database.
package moves

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/dispatches"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Moves implements engine.MoveStore.
type Moves struct{}

//go:embed moves.sql
var ddl string

// The rows of the table meta that a move writes.
const (
	keySource = "move_source"
	keyTarget = "move_target"
	keyHolder = "move_holder"
)

const (
	sqlMoveMeta    = `SELECT value FROM _honkerx_meta WHERE key = ?1`
	sqlMoveSetMeta = `INSERT INTO _honkerx_meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`

	sqlMoveSequences = `SELECT name, seq FROM sqlite_sequence`

	sqlMoveNewSource = `INSERT INTO _honkerx_meta (key, value) VALUES ('` + keySource + `', lower(hex(randomblob(16)))) ON CONFLICT (key) DO NOTHING`
)

func meta(ctx context.Context, q row.Querier, key string) (value string, err error) {
	_, err = rows.One(ctx, q, sqlMoveMeta, []any{key}, &value)
	return value, err
}

// Origin implements engine.MoveStore.
func (Moves) Origin(ctx context.Context, q row.Querier) (s row.MoveSource, target string, err error) {
	if s.ID, err = meta(ctx, q, keySource); err != nil {
		return s, "", err
	}
	if target, err = meta(ctx, q, keyTarget); err != nil {
		return s, "", err
	}
	to := map[string]*int64{"_honkerx_moving": &s.Parcel, "_honker_live": &s.Jobs, "_honkerx_batches": &s.Batch, "_honker_stream": &s.Event}
	err = rows.Each(ctx, q, sqlMoveSequences, func(r *sql.Rows) error {
		var name string
		var seq rows.Number
		err := r.Scan(&name, &seq)
		if n := to[name]; n != nil {
			*n = int64(seq)
		}
		return err
	})
	return s, target, err
}

// Begin implements engine.MoveStore.
func (m Moves) Begin(ctx context.Context, q row.Querier, mover row.Mover) (row.MoveSource, error) {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return row.MoveSource{}, err
	}
	if err := rows.ExecAll(ctx, q, rows.SplitDDL(ddl)); err != nil {
		return row.MoveSource{}, err
	}
	if err := dispatches.Create(ctx, q); err != nil { // the statements for parcels read them
		return row.MoveSource{}, err
	}
	if _, err := q.ExecContext(ctx, sqlMoveNewSource); err != nil {
		return row.MoveSource{}, err
	}
	for key, value := range map[string]string{keyTarget: mover.Target, keyHolder: mover.Token} {
		if value == "" {
			continue
		}
		if _, err := q.ExecContext(ctx, sqlMoveSetMeta, key, value); err != nil {
			return row.MoveSource{}, err
		}
	}
	s, _, err := m.Origin(ctx, q)
	return s, err
}

// held returns an error if another mover has begun since.
func held(ctx context.Context, q row.Querier, token string) error {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return err
	}
	holder, err := meta(ctx, q, keyHolder)
	if err == nil && holder != token {
		err = fmt.Errorf("%w: another process has begun to move this file", engine.ErrBusy)
	}
	return err
}

const (
	sqlMoveFirstParcel = `SELECT n, parcel FROM _honkerx_moving ORDER BY n LIMIT 1`
	sqlMoveAddParcel   = `INSERT INTO _honkerx_moving (parcel) VALUES (?1) RETURNING n`
	sqlMoveDropParcel  = `DELETE FROM _honkerx_moving WHERE n = ?1`
)

// Parcel implements engine.MoveStore.
func (Moves) Parcel(ctx context.Context, q row.Querier) (p row.Parcel, err error) {
	_, err = rows.One(ctx, q, sqlMoveFirstParcel, nil, &p.N, &p.Text)
	return p, err
}

// Arrived implements engine.MoveStore.
func (Moves) Arrived(ctx context.Context, q row.Querier, token string, n int64) error {
	if err := held(ctx, q, token); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlMoveDropParcel, n)
	return err
}

// add stores a parcel.
func add(ctx context.Context, q row.Querier, text string) (p row.Parcel, err error) {
	p.Text = text
	_, err = rows.One(ctx, q, sqlMoveAddParcel, []any{text}, &p.N)
	return p, err
}

package streams

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const sqlPublishAll = `SELECT honker.publish_all($1::text[], $2::text[], $3::text[], $4)`

// PublishAll implements engine.Publisher. An event without a key has NULL, as Publish stores it.
func (s Streams) PublishAll(ctx context.Context, q row.Querier, all []row.Publication, now time.Time) ([][2]int64, error) {
	var topics, payloads []string
	var keys []*string
	for _, p := range all {
		for i, payload := range p.Payloads {
			key := keyOf(p, i)
			topics, payloads, keys = append(topics, p.Topic), append(payloads, payload), append(keys, pgsql.OrNull(key.String, key.Valid))
		}
	}
	offsets, err := pgsql.IDs(ctx, q, s.SQL(sqlPublishAll), topics, keys, payloads, pgsql.Stamp(now))
	if pgsql.Dropped(err) {
		err = row.ErrNotInserted
	}
	if err != nil {
		return nil, err
	}
	out := make([][2]int64, len(all))
	for i, p := range all {
		n := len(p.Payloads)
		out[i] = [2]int64{offsets[0], offsets[n-1]}
		offsets = offsets[n:]
	}
	return out, nil
}

// keyOf returns the key of event i of p.
func keyOf(p row.Publication, i int) sql.NullString {
	switch len(p.Keys) {
	case 0:
		return sql.NullString{}
	case 1:
		i = 0
	}
	return sql.NullString{String: p.Keys[i], Valid: true}
}

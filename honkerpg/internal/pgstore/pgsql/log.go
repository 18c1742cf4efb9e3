package pgsql

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// AddedSince runs a query with the parameters after and limit that returns the head of a log, with a NULL name, and the
// number, name and key of each row above after. It implements the Since of wake.Log.
func AddedSince(ctx context.Context, q row.Querier, query string, after int64, limit int) (added row.Added, n int, last int64, err error) {
	added = make(row.Added)
	var head int64
	err = Each(ctx, q, query, func(r *sql.Rows) error {
		var id int64
		var name, key sql.NullString
		if err := r.Scan(&id, &name, &key); err != nil {
			return err
		}
		if !name.Valid {
			head = id
			return nil
		}
		n, last = n+1, max(last, id)
		added.Add(name.String, key.String)
		return nil
	}, Replan, after, limit)
	if n == 0 {
		last = min(head, after)
	}
	return added, n, last, err
}

package ops

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	sqlStandbys = `SELECT standby, coalesce(behind, 0), coalesce(extract(epoch FROM lag), 0)::float8, away FROM honker.slow_standbys($1::bigint * interval '1 second', $2)`
	sqlLoad     = `SELECT sees_all, coalesce(dead, 0), coalesce(connections, 0), most FROM honker.server_load()`
)

// Limits of a healthy server.
const (
	standbyLag   = time.Minute
	standbyBytes = 256 << 20
	mostDead     = 100_000 // deleted jobs; the same number is in problems.sql
	// Of ten connections, nine may be used.
	usedOf, usedMost = 10, 9
)

func (s Problems) standbys(ctx context.Context, q row.Querier) (all []row.Standby, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlStandbys), func(r *sql.Rows) error {
		var x row.Standby
		var lag float64
		err := r.Scan(&x.Name, &x.Behind, &lag, &x.Away)
		x.Lag = time.Duration(lag * float64(time.Second))
		all = append(all, x)
		return err
	}, int64(standbyLag/time.Second), int64(standbyBytes))
	return all, err
}

// load adds the problems of the server's load to t, which has all others.
func (s Problems) load(ctx context.Context, q row.Querier, t *row.Troubles) error {
	var seesAll bool
	var dead int64
	var c row.Connections
	if _, err := pgsql.One(ctx, q, s.SQL(sqlLoad), nil, &seesAll, &dead, &c.Used, &c.Most); err != nil {
		return err
	}
	if c.Used*usedOf >= c.Most*usedMost {
		t.Connections = &c
	}
	if seesAll {
		return nil
	}
	for _, b := range t.Blocked {
		t.Unseen += b.N
	}
	if dead > mostDead {
		t.Unseen += dead
	}
	return nil
}

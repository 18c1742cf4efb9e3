package ops

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Sizes contains the statements that tell the sizes of tables.
type Sizes struct{ pgsql.Schema }

const (
	sqlTableBytes = `SELECT c.relname::text, greatest(pg_stat_get_live_tuples(c.oid), 0), c.bytes - c.indexes, c.indexes,
  coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int, greatest(pg_database_size(current_database()) - sum(c.bytes) OVER (), 0)::bigint
FROM (SELECT c.oid, c.relname, pg_total_relation_size(c.oid) AS bytes, pg_indexes_size(c.oid) AS indexes FROM pg_class c
  WHERE c.relkind = 'r' AND c.relnamespace = (SELECT j.relnamespace FROM pg_class j WHERE j.oid = 'honker.job'::regclass) OFFSET 0) c
WHERE c.bytes IS NOT NULL ORDER BY c.relname`

	// The size of a payload that is stored apart is in its row. rowBytes stands for all else in a row.
	sqlEventParts = `SELECT topic, count(*), sum(coalesce(pg_column_size(payload), 0) + ` + rowBytes + `) FROM honker.event TABLESAMPLE SYSTEM ($1) GROUP BY 1 ORDER BY 1`
	sqlJobParts   = `SELECT queue, count(*), sum(coalesce(pg_column_size(payload), 0) + ` + rowBytes + `) FROM honker.job TABLESAMPLE SYSTEM ($1) GROUP BY 1 ORDER BY 1`
	sqlDeadParts  = `SELECT queue, count(*), sum(coalesce(pg_column_size(payload), 0) + ` + rowBytes + `) FROM honker.dead TABLESAMPLE SYSTEM ($1) GROUP BY 1 ORDER BY 1`
	sqlDoneParts  = `SELECT queue, count(*), sum(coalesce(pg_column_size(payload), 0) + ` + rowBytes + `) FROM honker.done TABLESAMPLE SYSTEM ($1) GROUP BY 1 ORDER BY 1`
	rowBytes      = `100`

	// sampledPages is about the number of pages of a table that are read.
	sampledPages = 300
)

var partsOf = map[string]string{"event": sqlEventParts, "job": sqlJobParts, "dead": sqlDeadParts, "done": sqlDoneParts}

// Sizes implements engine.SizeStore. The sizes of tables are exact, and a sample of pages tells the shares of topics and
// queues.
func (s Sizes) Sizes(ctx context.Context, q row.Querier) (sizes row.Sizes, err error) {
	var pages []int64
	err = pgsql.Each(ctx, q, s.SQL(sqlTableBytes), func(r *sql.Rows) error {
		var t row.TableBytes
		var n int64
		err := r.Scan(&t.Name, &t.Rows, &t.Bytes, &t.Indexes, &n, &sizes.Other)
		sizes.Tables, pages = append(sizes.Tables, t), append(pages, n)
		return err
	})
	if err != nil {
		return row.Sizes{}, err
	}
	for i, t := range sizes.Tables {
		query := partsOf[t.Name]
		if query == "" || pages[i] == 0 {
			continue
		}
		parts, err := s.parts(ctx, q, query, t, min(100, 100*sampledPages/float64(pages[i])))
		if err != nil {
			return row.Sizes{}, err
		}
		sizes.Parts = append(sizes.Parts, parts...)
	}
	return sizes, nil
}

// parts divides the table t into parts, by a sample of a percentage of its pages.
func (s Sizes) parts(ctx context.Context, q row.Querier, query string, t row.TableBytes, percent float64) (parts []row.PartBytes, err error) {
	var sampled row.PartBytes
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		p := row.PartBytes{Table: t.Name}
		err := r.Scan(&p.Name, &p.Rows, &p.Bytes)
		sampled.Rows, sampled.Bytes = sampled.Rows+p.Rows, sampled.Bytes+p.Bytes
		parts = append(parts, p)
		return err
	}, pgsql.Replan, percent)
	for i, p := range parts {
		byRows, byBytes := float64(p.Rows)/float64(sampled.Rows), float64(p.Bytes)/float64(sampled.Bytes)
		parts[i].Rows = int64(float64(p.Rows)*100/percent + 0.5)
		parts[i].Bytes = int64(float64(t.Bytes)*byBytes + float64(t.Indexes)*byRows)
	}
	return parts, err
}

package lists

import (
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// selectionRow makes a honker.selection of the first 19 parameters, which the function selection returns.
const selectionRow = `ROW($1::text[], $2::text[], $3::bigint[], $4::text, $5::text, $6::bigint, $7::text, $8::text, $9::text, $10::jsonb, $11::jsonb,
  $12::bigint, $13::timestamptz, $14::timestamptz, $15::timestamptz, $16::timestamptz, $17::timestamptz, $18::timestamptz, $19::bigint)::honker.selection`

// selection returns the values of selectionRow.
func selection(s *row.JobSelect) []any {
	var phases []string
	if s.Phases != nil {
		phases = texts(s.Phases)
	}
	return []any{queuesOf(s), phases, s.IDs, text(s.Key), text(s.Unique), number(s.Batch), text(s.Worker), text(s.Error), text(s.Contains),
		fields(s.Where), fields(s.Header), number(s.MinAttempts), bound(s.CreatedSince), bound(s.CreatedBefore), bound(s.RunSince), bound(s.RunBefore),
		bound(s.DiedSince), bound(s.DiedBefore), number(s.Requeue)}
}

// queuesOf returns the queues of s, or nil for all queues.
func queuesOf(s *row.JobSelect) []string {
	if len(s.Queues) == 0 {
		return nil
	}
	return distinct(s.Queues)
}

func text(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func number(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: n != 0} }

func bound(t time.Time) sql.NullTime { return sql.NullTime{Time: pgsql.StampUp(t), Valid: !t.IsZero()} }

// fields encodes JSON paths and the texts at them for honker.has_fields. A path has the form $."a"."b".
func fields(of map[string]string) (encoded sql.NullString) {
	if len(of) == 0 {
		return encoded
	}
	type field struct {
		Path []string `json:"path"`
		Is   string   `json:"is"`
	}
	var all []field
	for _, path := range slices.Sorted(maps.Keys(of)) {
		names := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, `$."`), `"`), `"."`)
		all = append(all, field{names, of[path]})
	}
	b, _ := json.Marshal(all) // strings cannot fail
	return sql.NullString{String: string(b), Valid: true}
}

package sqlite

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"
)

// Plain returns a q that takes the numbered parameters of SQLite. What wraps a
// transaction may write arguments into the text by rules of its own, as bun does, which
// counts from 0; a bare ? means the same to all.
func Plain(q Querier) Querier {
	switch q.(type) {
	case *sql.Tx, *sql.Conn:
		return q
	}
	return plain{q}
}

type plain struct{ Querier }

func (p plain) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	text, args := unnumbered(query, args)
	return p.Querier.ExecContext(ctx, text, args...)
}

func (p plain) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	text, args := unnumbered(query, args)
	return p.Querier.QueryContext(ctx, text, args...)
}

// bareText is a statement without numbers, and which arguments stand in their places.
type bareText struct {
	text   string
	places []int
}

var bareTexts sync.Map // by the numbered text: the store has few

func unnumbered(query string, args []any) (string, []any) {
	b, ok := bareTexts.Load(query)
	if !ok {
		b, _ = bareTexts.LoadOrStore(query, newBareText(query))
	}
	bare := b.(bareText)
	out := make([]any, len(bare.places))
	for i, place := range bare.places {
		out[i] = args[place]
	}
	return bare.text, out
}

// newBareText reads a statement of the store, where ? stands for nothing but parameters.
// One without a number is the one after the highest so far.
func newBareText(query string) bareText {
	var b bareText
	var text strings.Builder
	highest := 0
	for rest := query; ; {
		before, after, found := strings.Cut(rest, "?")
		text.WriteString(before)
		if !found {
			b.text = text.String()
			return b
		}
		digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
		n, err := strconv.Atoi(after[:digits])
		if err != nil {
			n = highest + 1
		}
		highest = max(highest, n)
		b.places = append(b.places, n-1)
		text.WriteString("?")
		rest = after[digits:]
	}
}

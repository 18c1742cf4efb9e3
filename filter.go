package honker

import (
	"fmt"

	"github.com/honker-go/honker/internal/store"
)

// Filter picks events by their keys; an event without a key counts as one with "". It is
// made of [KeyIs], [KeyPrefix], [And] and [Or], and evaluated where the events lie.
type Filter interface{ filter() *store.Filter }

type filter store.Filter

func (f filter) filter() *store.Filter { return (*store.Filter)(&f) }

// KeyIs picks the events with exactly that key.
func KeyIs(key string) Filter { return filter{Op: store.KeyIs, Key: key} }

// KeyPrefix picks the events whose key begins with p, byte by byte: there are no
// wildcards, and case matters. "" picks all.
func KeyPrefix(p string) Filter { return filter{Op: store.KeyPrefix, Key: p} }

// And picks the events that every one of f picks: all, when there is none.
func And(f ...Filter) Filter { return filter{Op: store.And, Of: parts(f)} }

// Or picks the events that one of f picks: none, when there is none.
func Or(f ...Filter) Filter { return filter{Op: store.Or, Of: parts(f)} }

// parts holds nil for what it is everywhere: no filter.
func parts(fs []Filter) []store.Filter {
	out := make([]store.Filter, len(fs))
	for i, f := range fs {
		if f == nil {
			f = And()
		}
		out[i] = *f.filter()
	}
	return out
}

// SQLite bounds what one statement may hold.
const (
	maxFilterDepth = 32
	maxFilterParts = 1000
)

// filterOf checks f for use; nil is nil.
func filterOf(f Filter) (*store.Filter, error) {
	if f == nil {
		return nil, nil
	}
	out, count := f.filter(), 0
	return out, checkFilter(*out, 1, &count)
}

func checkFilter(f store.Filter, depth int, count *int) error {
	switch *count++; {
	case depth > maxFilterDepth:
		return fmt.Errorf("%w: filter deeper than %d", ErrInvalid, maxFilterDepth)
	case *count > maxFilterParts:
		return fmt.Errorf("%w: filter of more than %d parts", ErrInvalid, maxFilterParts)
	}
	if f.Key != "" {
		if err := checkName("key of a filter", f.Key); err != nil {
			return err
		}
	}
	for _, part := range f.Of {
		if err := checkFilter(part, depth+1, count); err != nil {
			return err
		}
	}
	return nil
}

package store

import "errors"

// pageBytes bounds the payloads held by a single read. A read stops once it has collected this many
// bytes, whatever the number of rows.
const pageBytes = 1 << 20

// errPageFull ends a read at pageBytes.
var errPageFull = errors.New("page is full")

// overdueLimit bounds the overdue jobs of each kind, or the lapsed leases of events, that a single claim
// settles. Without it the crash of a large worker would lead to a long transaction.
const overdueLimit = 1000

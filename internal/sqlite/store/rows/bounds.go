package rows

import "errors"

// PageBytes bounds the payloads held by a single read. A read stops once it has collected this many
// bytes, whatever the number of rows.
const PageBytes = 1 << 20

// ErrPageFull ends a read at PageBytes.
var ErrPageFull = errors.New("page is full")

// OverdueLimit bounds the overdue jobs of each kind, or the lapsed leases of events, that a single claim
// settles. Without it the crash of a large worker would lead to a long transaction.
const OverdueLimit = 1000

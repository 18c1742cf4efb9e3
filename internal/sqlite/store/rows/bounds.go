package rows

import "errors"

// PageBytes limits the payloads held by a single read. A read stops once it has collected this many bytes, regardless
// of the number of rows.
const PageBytes = 1 << 20

// ErrPageFull ends a read at PageBytes.
var ErrPageFull = errors.New("page is full")

// OverdueLimit is the maximum number of overdue jobs of each kind, or of lapsed event leases, that a single claim
// settles. Without it a large worker's crash would lead to a long transaction.
const OverdueLimit = 1000

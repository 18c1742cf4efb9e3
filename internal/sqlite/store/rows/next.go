package rows

import (
	"math"
)

// Earlier returns the earlier of two times. Zero means no time.
func Earlier(a, b Number) Number {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// NextClaim returns the earlier of the second at which a job is due and the first second after a claim's end.
// Zero means none. The largest second, which another binding may store for an unlimited claim, is not
// incremented because it would overflow.
func NextClaim(due, claim Number) int64 {
	if claim != 0 && claim != math.MaxInt64 {
		claim++
	}
	if due == 0 || claim != 0 && claim < due {
		return int64(claim)
	}
	return int64(due)
}

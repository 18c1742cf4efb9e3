package rows

import "math"

// After returns now plus seconds, or the largest second if the sum would overflow.
func After(now, seconds int64) int64 {
	if seconds > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + seconds
}

// ExpiryIn is like After for NewJob.ExpiresAt, where 0 means never. It returns -1 instead of 0; both are
// long past.
func ExpiryIn(now, seconds int64) int64 {
	if at := After(now, seconds); at != 0 {
		return at
	}
	return -1
}

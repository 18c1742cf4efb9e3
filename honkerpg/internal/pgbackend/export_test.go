package pgbackend

import (
	"testing"
	"time"
)

// OnlyNotices lets the watchers that are started until the end of the test look at notices only, after the looks with which
// they register: at once and after each of pauses.
func OnlyNotices(t testing.TB, pauses ...time.Duration) {
	safety, early, lasts, repeats := safetyLook, registerEarly, registration, again
	t.Cleanup(func() { safetyLook, registerEarly, registration, again = safety, early, lasts, repeats })
	safetyLook, registerEarly, registration, again = time.Hour, time.Hour, 2*time.Hour, pauses
}

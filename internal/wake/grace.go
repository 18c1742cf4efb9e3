package wake

import "time"

// Grace is a period that begins when [Grace.Left] is first called. A look function of [Notifier.Until] returns its
// rest, because a wake-up may end a wait early. The zero Grace is ready to use.
type Grace struct {
	end time.Time
}

// Left returns what is left of a period of length d. It returns Done once the period is over.
func (g *Grace) Left(d time.Duration) time.Duration {
	if g.end.IsZero() {
		g.end = time.Now().Add(d)
	}
	return max(time.Until(g.end), Done)
}

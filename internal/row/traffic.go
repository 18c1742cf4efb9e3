package row

// Minute is a row of _honkerx_minutes, or what is added to one. The times are sums, in
// milliseconds, but for MaxWait.
type Minute struct {
	Minute                                           int64 // the unix time / 60
	Queue                                            string
	Enqueued, Claimed, Acked, Retried, Died, Snoozed int64
	Wait, Ran, MaxWait                               int64
}

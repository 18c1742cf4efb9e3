package jobs

import (
	"cmp"
	"slices"

	"github.com/honker-go/honker/internal/row"
)

// Bounds of a claim, whose rows are rewritten with their payloads.
const (
	claimBytes = 1 << 20 // payload bytes; the first statement may exceed them if payloads have grown
	claimFirst = 32      // jobs in the first statement, whatever their size
	claimGrows = 7       // growth of each further statement, as a multiple of the jobs claimed so far
)

// firstClaim returns how many jobs the first statement takes: as many as fit if no payload is larger than the recent
// maximum.
func firstClaim(r *row.ClaimRequest) int {
	if r == nil {
		return 0
	}
	n := claimFirst
	if r.Largest > 0 {
		n = max(n, claimBytes/r.Largest)
	}
	return min(n, r.N, row.ClaimRows)
}

// nextClaim returns how many jobs the next statement takes: as many as fit if no payload is larger than those so far. It
// returns 0 to end the claim, for example when the next statement would be too small to be worthwhile.
func nextClaim(r *row.ClaimRequest, c *row.Claimed) int {
	sum, _ := row.PayloadBytes(c.Jobs)
	rest := min(r.N, row.ClaimRows) - len(c.Jobs)
	n := min(rest, claimGrows*len(c.Jobs), (claimBytes-sum)/max(c.Largest, 1))
	if n < min(rest, claimFirst) {
		return 0
	}
	return n
}

// sortLanes sorts claimed jobs by the tags of their lanes, and jobs with the same tag in the order of claims.
func sortLanes(jobs []*row.Job, lanes []row.Lane) {
	slices.SortFunc(jobs, func(a, b *row.Job) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.RunAt.Compare(b.RunAt), cmp.Compare(a.ID, b.ID))
	})
	if len(lanes) < 2 {
		return
	}
	next := make(map[string]row.Lane, len(lanes))
	for _, l := range lanes {
		next[l.Queue] = l
	}
	tags := make(map[*row.Job]int64, len(jobs))
	for _, j := range jobs {
		l := next[j.Queue]
		tags[j] = l.Start
		l.Start += l.Step
		next[j.Queue] = l
	}
	slices.SortStableFunc(jobs, func(a, b *row.Job) int { return cmp.Compare(tags[a], tags[b]) })
}

package ui

import "time"

// Route is an entry in the route table.
type Route struct {
	Path, Verb  string
	Post, Write bool
}

func Routes() (all []Route) {
	for _, r := range routes() {
		all = append(all, Route{r.path, r.verb, r.post, r.write})
	}
	return all
}

// ActFor sets the maximum time for a verb on many jobs. The returned function restores it.
func ActFor(d time.Duration) (undo func()) {
	was := actionTime
	actionTime = d
	return func() { actionTime = was }
}

// SearchFor sets the maximum time for a page's search. The returned function restores it.
func SearchFor(d time.Duration) (undo func()) {
	was := []time.Duration{pageBudget, stepBudget, patientBudget}
	pageBudget, stepBudget, patientBudget = d, d, d
	return func() { pageBudget, stepBudget, patientBudget = was[0], was[1], was[2] }
}

var LayOut = layOut

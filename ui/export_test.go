package ui

import "time"

// Route is a row of the table of pages and verbs, for the test that walks it.
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

// ActFor bounds one request of a verb on many jobs, until the function is called that it returns.
func ActFor(d time.Duration) (undo func()) {
	was := actionTime
	actionTime = d
	return func() { actionTime = was }
}

// SearchFor bounds the search of one page, until the function is called that it returns.
func SearchFor(d time.Duration) (undo func()) {
	was := pageBudget
	pageBudget = d
	return func() { pageBudget = was }
}

var LayOut = layOut

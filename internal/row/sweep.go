package row

// Swept is the outcome of a single transaction of a sweep.
type Swept struct {
	N    int     // rows taken
	Dead []Death // jobs that became dead letters; N counts them too
	More bool    // there may be more rows, so the sweep should search again
}

// Part is a part of a sweep, such as a queue. A sweep of the whole database has the zero Part.
type Part struct {
	Name    string
	Through Cutoff // newest job to take, in a sweep that keeps some of the jobs
}

package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// noFile refuses to describe the database, which is not a file.
type noFile struct{}

var errNoFile = fmt.Errorf("%w: the database is not a file; use psql or the views pg_stat_user_tables and pg_indexes", engine.ErrUnsupported)

func (noFile) Definitions(context.Context, row.Querier) ([]row.Definition, error) {
	return nil, errNoFile
}

func (noFile) Describe(context.Context, row.Querier, int) (row.FileState, error) {
	return row.FileState{}, errNoFile
}

// dispatches refuses the verbs of package dispatch, which needs tables that the schema does not have yet. A list of
// actors is empty.
type dispatches struct{}

var errNoDispatch = fmt.Errorf("%w: package dispatch needs a SQLite database; use queues", engine.ErrUnsupported)

func (dispatches) Lock(context.Context, row.Querier) error { return errNoDispatch }

func (dispatches) Add(context.Context, row.Querier, row.Sent, time.Time) (bool, error) {
	return false, errNoDispatch
}

func (dispatches) AddTwins(context.Context, row.Querier, int64, []int64) error { return errNoDispatch }

func (dispatches) Original(context.Context, row.Querier, int64) (int64, string, bool, error) {
	return 0, "", false, errNoDispatch
}

func (dispatches) Copies(context.Context, row.Querier, int64, time.Time) ([]row.DispatchCopy, error) {
	return nil, errNoDispatch
}

func (dispatches) Status(context.Context, row.Querier, string, int64, time.Time) (row.DispatchStatus, bool, error) {
	return row.DispatchStatus{}, false, errNoDispatch
}

func (dispatches) Stop(context.Context, row.Querier, int64, time.Time) ([]row.DispatchCopy, error) {
	return nil, errNoDispatch
}

func (dispatches) EndStopped(context.Context, row.Querier, int64, time.Time) error {
	return errNoDispatch
}

func (dispatches) Loads(context.Context, row.Querier, []string) ([]row.DispatchLoad, error) {
	return nil, errNoDispatch
}

func (dispatches) Occupancy(context.Context, row.Querier, []string, []string) (row.DispatchOccupancy, error) {
	return row.DispatchOccupancy{}, errNoDispatch
}

func (dispatches) Register(context.Context, row.Querier, row.DispatchPresence, time.Time) (bool, error) {
	return false, errNoDispatch
}

func (dispatches) Beat(context.Context, row.Querier, []row.DispatchPresence) ([]string, error) {
	return nil, errNoDispatch
}

func (dispatches) Leave(context.Context, row.Querier, string, string) (bool, error) {
	return false, errNoDispatch
}

func (dispatches) Presences(context.Context, row.Querier, string, string, time.Time) ([]row.DispatchPresence, error) {
	return nil, nil
}

// empty is a sweep of rows that do not exist.
var empty = engine.Sweep{
	Find: func(context.Context, row.Querier, row.Part, time.Time, int) ([]int64, error) { return nil, nil },
	Take: func(context.Context, row.Querier, row.Part, []int64, time.Time, int) (row.Swept, error) {
		return row.Swept{}, nil
	},
}

// problems finds nothing yet.
type problems struct{}

func (problems) LapsedSince(context.Context, row.Querier, string, time.Time) (time.Time, error) {
	return time.Time{}, nil
}

func (problems) Problems(context.Context, row.Querier, row.ProblemAges, time.Time) (row.Troubles, error) {
	return row.Troubles{}, nil
}

func (problems) Retains(context.Context, row.Querier) (int64, int64, error) { return 0, 0, nil }

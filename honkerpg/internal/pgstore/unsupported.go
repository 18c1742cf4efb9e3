package pgstore

import (
	"context"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// noFile refuses to describe the database, which is not a file.
type noFile struct{}

var errNoFile = fmt.Errorf("%w: the database is not a file; use admin.Database, or \\d in psql", engine.ErrUnsupported)

func (noFile) Definitions(context.Context, row.Querier) ([]row.Definition, error) {
	return nil, errNoFile
}

func (noFile) Describe(context.Context, row.Querier, int) (row.FileState, error) {
	return row.FileState{}, errNoFile
}

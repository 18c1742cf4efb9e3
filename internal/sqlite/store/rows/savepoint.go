package rows

import (
	"context"
	"errors"

	"github.com/honker-go/honker/internal/row"
)

// The savepoint for part of a transaction, such as a message in a relay's batch.
const (
	savepoint  = `SAVEPOINT honker_message`
	rollbackTo = `ROLLBACK TO honker_message`
	release    = `RELEASE honker_message`
)

// Savepoint starts the savepoint that EndSavepoint ends.
func Savepoint(ctx context.Context, q row.Querier) error {
	_, err := q.ExecContext(ctx, savepoint)
	return err
}

// EndSavepoint keeps or undoes the writes since Savepoint. An error means that the transaction has since been ended
// or replaced.
func EndSavepoint(ctx context.Context, q row.Querier, keep bool) error {
	var err error
	if !keep {
		_, err = q.ExecContext(ctx, rollbackTo)
	}
	if err == nil {
		_, err = q.ExecContext(ctx, release)
	}
	if err != nil {
		return errors.Join(errors.New("the transaction was ended or lost"), err)
	}
	return nil
}

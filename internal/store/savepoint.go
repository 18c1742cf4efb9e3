package store

import (
	"context"
	"errors"
)

// The savepoint of one message, within the transaction of a batch.
const (
	savepoint  = `SAVEPOINT honker_message`
	rollbackTo = `ROLLBACK TO honker_message`
	release    = `RELEASE honker_message`
)

// Savepoint begins what EndSavepoint ends.
func Savepoint(ctx context.Context, q Querier) error {
	_, err := q.ExecContext(ctx, savepoint)
	return err
}

// EndSavepoint keeps, or undoes, what was written since Savepoint. Its error says that the
// transaction is no longer the one that it was.
func EndSavepoint(ctx context.Context, q Querier, keep bool) error {
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

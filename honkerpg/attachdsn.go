//go:build honkerpg

package honkerpg

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/honker-go/honker"
)

// inBubbles allows testing/synctest bubbles to honker's own tests. A bubble's clock stands still while a server is asked,
// so a test must not wait for another process there, nor for a lock that another goroutine gives up after a time.
const inBubbles = true

// AttachDSN returns an attached DB, and the function that closes its pool. The tests of package honker use it. Their module
// does not require pgx, and so they cannot make a pool.
func AttachDSN(ctx context.Context, dsn string, opts *Options) (db *honker.DB, closePool func(), err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, nil, err
	}
	if db, err = Attach(ctx, pool, opts); err != nil {
		pool.Close()
	}
	return db, pool.Close, err
}

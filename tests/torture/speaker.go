//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// speak is the second process of Wakes. Each line that it reads contains a number of commits and
// the pause between them in microseconds. It prints a line after these commits. A commit contains a
// message and an event.
func speak() {
	db, err := honker.Open(testkit.ChildContext(), testkit.ChildArgs[part]().Path, nil)
	testkit.Must(err)
	n := int64(0)
	for line, ok := testkit.ReadLine(); ok; line, ok = testkit.ReadLine() {
		var times, pause int
		_, err := fmt.Sscan(line, &times, &pause)
		testkit.Must(err)
		for range times {
			n++
			testkit.Must(say(testkit.ChildContext(), db, n))
			if pause > 0 {
				time.Sleep(time.Duration(pause) * time.Microsecond)
			}
		}
		testkit.Say("said", n)
	}
	testkit.Must(db.Close())
}

func say(ctx context.Context, db *honker.DB, n int64) error {
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		s := said{N: n, At: time.Now().UnixNano()}
		_, notified := db.NotifyTx(ctx, tx, "news", s)
		_, published := honker.NewStream[said](db, "news", nil).PublishTx(ctx, tx, s)
		return errors.Join(notified, published)
	})
	if ctx.Err() != nil { // the parent is gone
		return nil
	}
	return err
}

package store_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/locks"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// These statements are equivalent to honker's lock functions. Acquire is the first two, followed by
// a check of the owner.
const (
	honkerLockSweep   = `DELETE FROM _honker_locks WHERE name = ?1 AND expires_at <= ?2`
	honkerLockInsert  = `INSERT OR IGNORE INTO _honker_locks (name, owner, expires_at) VALUES (?1, ?2, ?3)`
	honkerLockRelease = `DELETE FROM _honker_locks WHERE name = ?1 AND owner = ?2`
	honkerLockRenew   = `UPDATE _honker_locks SET expires_at = ?3 WHERE name = ?1 AND owner = ?2`
	lockRows          = `SELECT name, owner, expires_at FROM _honker_locks ORDER BY name`
)

func acquire(t *testing.T, q row.Querier, name, owner string, now, expires int64) (int64, bool) {
	t.Helper()
	token, ok, err := locks.Locks{}.AcquireAt(ctx, q, name, owner, now, expires)
	require.NoError(t, err)
	require.Equal(t, ok, token > 0)
	return token, ok
}

// change runs one of honker's statements and reports whether it changed a row.
func change(t *testing.T, q row.Querier, query string, args ...any) bool {
	t.Helper()
	res, err := q.ExecContext(ctx, query, args...)
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	return n > 0
}

// Our locks and honker's leave the same rows after the same steps. They differ only where honker's behavior is
// harmful: honker's Acquire succeeds for the current owner, and honker renews an expired lock.
func TestLockRows_AsHonker(t *testing.T) {
	tx := begin(t, openFresh(t))
	r := rand.New(rand.NewPCG(seed(t), 1))
	met := map[string]int{}
	for step := range 3000 {
		name, owner := fmt.Sprint("lock", r.IntN(2)), fmt.Sprint("owner", r.IntN(3))
		now, ttl := int64(step/4), 1+r.Int64N(4)
		holder, _, held, err := locks.Locks{}.HeldAt(ctx, tx, name, now)
		require.NoError(t, err)
		verb := r.IntN(3)
		if verb == 1 && !held {
			continue
		}
		exec(t, tx, `SAVEPOINT step`)
		want := honkerStep(t, tx, verb, name, owner, now, ttl) && (verb != 0 || !held)
		rs := lines(t, tx, lockRows)
		exec(t, tx, `ROLLBACK TO step`)
		got := ourStep(t, tx, verb, name, owner, now, ttl)
		require.Equal(t, want, got, "verb %d of %s on %v at %d", verb, owner, holder, now)
		require.Equal(t, rs, lines(t, tx, lockRows))
		exec(t, tx, `RELEASE step`)
		met[fmt.Sprint(verb, got)]++
	}
	for verb := range 3 {
		require.Greater(t, met[fmt.Sprint(verb, true)], 50)
		require.Greater(t, met[fmt.Sprint(verb, false)], 50)
	}
}

func honkerStep(t *testing.T, tx *sql.Tx, verb int, name, owner string, now, ttl int64) bool {
	switch verb {
	case 0:
		change(t, tx, honkerLockSweep, name, now)
		return change(t, tx, honkerLockInsert, name, owner, now+ttl)
	case 1:
		return change(t, tx, honkerLockRenew, name, owner, now+ttl)
	}
	return change(t, tx, honkerLockRelease, name, owner)
}

func ourStep(t *testing.T, tx *sql.Tx, verb int, name, owner string, now, ttl int64) (ok bool) {
	var err error
	switch verb {
	case 0:
		_, ok = acquire(t, tx, name, owner, now, now+ttl)
	case 1:
		ok, err = locks.Locks{}.RenewAt(ctx, tx, name, owner, now, now+ttl)
	default:
		ok, err = locks.Locks{}.Release(ctx, tx, name, owner)
	}
	require.NoError(t, err)
	return ok
}

func TestLocks_Acquire_RefusedToItsOwnOwner(t *testing.T) {
	tx := begin(t, openFresh(t))
	_, ok := acquire(t, tx, "a", "me", 10, 20)
	require.True(t, ok)
	_, ok = acquire(t, tx, "a", "me", 19, 40)
	require.False(t, ok)
	require.Equal(t, []string{"a|me|20"}, lines(t, tx, lockRows))
	_, ok = acquire(t, tx, "a", "me", 20, 40)
	require.True(t, ok, "expired")
}

// An expired lock is not renewed.
func TestLockRows_ExpiredNotRenewed(t *testing.T) {
	tx := begin(t, openFresh(t))
	acquire(t, tx, "a", "me", 10, 20)
	for _, c := range []struct {
		owner string
		now   int64
		want  bool
	}{{"you", 15, false}, {"me", 19, true}, {"me", 30, false}, {"me", 31, false}} {
		ok, err := locks.Locks{}.RenewAt(ctx, tx, "a", c.owner, c.now, 30)
		require.NoError(t, err)
		require.Equal(t, c.want, ok, "%+v", c)
	}
	require.Equal(t, []string{"a|me|30"}, lines(t, tx, lockRows))
}

// Fencing tokens increase across names and releases.
func TestLockRows_TokensGrow(t *testing.T) {
	tx := begin(t, openFresh(t))
	last := int64(0)
	for i := range 30 { // more than nine, because tokens must compare as numbers
		token, ok := acquire(t, tx, "lock"+strconv.Itoa(i%3), "me", 10, 20)
		require.True(t, ok)
		require.Greater(t, token, last)
		last = token
		_, err := locks.Locks{}.Release(ctx, tx, "lock"+strconv.Itoa(i%3), "me")
		require.NoError(t, err)
	}
	require.Equal(t, []string{"lock_token|30"}, lines(t, tx, `SELECT * FROM _honkerx_meta WHERE key = 'lock_token'`))
}

// States reports when each lock becomes free.
func TestLockRows_States(t *testing.T) {
	tx := begin(t, openFresh(t))
	acquire(t, tx, "held", "me", 10, 20)
	acquire(t, tx, "expired", "me", 5, 10)
	acquire(t, tx, "not asked", "me", 10, 20)
	states, err := locks.Locks{}.States(ctx, tx, []string{"held", "expired", "never", `"`, "new\nline"}, time.Unix(10, 0))
	require.NoError(t, err)
	require.Equal(t, map[string]time.Time{"held": time.Unix(20, 0), "expired": {}, "never": {}, `"`: {}, "new\nline": {}}, states)
	states, err = locks.Locks{}.States(ctx, tx, nil, time.Unix(10, 0))
	require.NoError(t, err)
	require.Empty(t, states)
}

func TestLocks_Held_UntilItExpires(t *testing.T) {
	tx := begin(t, openFresh(t))
	acquire(t, tx, "a", "me", 10, 20)
	for now, want := range map[int64]bool{10: true, 19: true, 20: false, 21: false} {
		held, err := locks.Locks{}.Held(ctx, tx, "a", time.Unix(now, 0))
		require.NoError(t, err)
		require.Len(t, held, map[bool]int{true: 1}[want])
		if want {
			require.Equal(t, row.Lock{Name: "a", Owner: "me", Expires: time.Unix(20, 0)}, held[0])
		}
	}
}

func TestCheck_BrokenLocksAndWindows(t *testing.T) {
	for statement, rule := range map[string]string{
		`INSERT INTO _honker_locks VALUES ('a', '', 1)`:           "a lock has an owner",
		`INSERT INTO _honker_locks VALUES ('a', 'me', 'soon')`:    "the expiry of a lock is an integer",
		`INSERT INTO _honker_rate_limits VALUES ('a', 0, -1)`:     "the count of a rate limit",
		`INSERT INTO _honker_rate_limits VALUES ('a', 0, 'many')`: "the count of a rate limit",
	} {
		tx := begin(t, openFresh(t))
		exec(t, tx, statement)
		broken, err := schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Len(t, broken, 1, statement)
		require.Contains(t, broken[0], rule)
	}
}

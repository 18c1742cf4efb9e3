package sqlfunc

import (
	"database/sql/driver"
	"math"
	"time"

	"github.com/honker-go/honker/internal/sqlite/store/locks"
)

// lockAcquire returns 1 even if owner already holds the lock, as honker does. In that case it does
// not renew the lock.
func lockAcquire(c call) (driver.Value, error) {
	name, owner := c.text(0), c.text(1)
	_, ok, err := locks.Locks{}.AcquireAt(c.ctx, c.q, name, owner, c.now(), c.in(c.integer(2)))
	if err != nil || ok {
		return done(ok, err)
	}
	holder, _, held, err := locks.Locks{}.HeldAt(c.ctx, c.q, name, c.now())
	return done(held && holder == owner, err)
}

func lockRenew(c call) (driver.Value, error) {
	if c.integer(2) <= 0 {
		return nil, invalidf("ttl_s must be positive")
	}
	return done(locks.Locks{}.RenewAt(c.ctx, c.q, c.text(0), c.text(1), c.now(), c.in(c.integer(2))))
}

func lockRelease(c call) (driver.Value, error) {
	return done(locks.Locks{}.Release(c.ctx, c.q, c.text(0), c.text(1)))
}

func rateLimitTry(c call) (driver.Value, error) {
	limit, per := c.integer(1), c.integer(2)
	if limit <= 0 || per <= 0 {
		return nil, invalidf("limit and per must be positive")
	}
	return done(locks.RateLimits{}.Take(c.ctx, c.q, c.text(0), time.Unix(c.now()/per*per, 0), int(min(limit, math.MaxInt32))))
}

// rateLimitSweep limits negative ages, which refer to the future, to avoid an overflow.
func rateLimitSweep(c call) (driver.Value, error) {
	return count(locks.RateLimits{}.Sweep(c.ctx, c.q, c.now()-max(c.integer(0), -math.MaxInt32)))
}

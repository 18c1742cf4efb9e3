package honkertest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

const (
	after  = time.Hour // delay of every case
	keeper = "dies"    // worker of a claim that is never settled
)

// arrival reports whether the effect of a case has occurred.
type arrival = func() bool

type jobs = *honker.Queue[int]

// clockCases holds functions that start an operation whose effect must occur exactly one hour
// later.
type clockCases = map[string]func(t *testing.T, db *honker.DB, q jobs) arrival

// due returns an arrival that claims and acks a job from q.
func due(t *testing.T, q jobs) arrival {
	return func() bool {
		claimed := testkit.Claim(t, q, 1)
		for _, job := range claimed {
			require.NoError(t, job.Ack(t.Context()))
		}
		return len(claimed) > 0
	}
}

func enqueued(opts ...honker.EnqueueOption) func(*testing.T, *honker.DB, jobs) arrival {
	return func(t *testing.T, _ *honker.DB, q jobs) arrival { testkit.Enqueue(t, q, 1, opts...); return due(t, q) }
}

func handled(fn honkertest.Handler[int]) func(*testing.T, *honker.DB, jobs) arrival {
	return func(t *testing.T, _ *honker.DB, q jobs) arrival { honkertest.Perform(t, q, 1, fn); return due(t, q) }
}

// settledTx settles a job in a transaction.
func settledTx(settle func(context.Context, *sql.Tx, *honker.Job[int]) error) func(*testing.T, *honker.DB, jobs) arrival {
	return func(t *testing.T, db *honker.DB, q jobs) arrival {
		testkit.Enqueue(t, q, 1)
		job := testkit.ClaimOne(t, q)
		require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return settle(ctx, tx, job) }))
		return due(t, q)
	}
}

// limited uses up a limit that allows a single start and waits until another start is allowed.
func limited(l honker.Limits, opts ...honker.EnqueueOption) func(*testing.T, *honker.DB, jobs) arrival {
	return func(t *testing.T, _ *honker.DB, q jobs) arrival {
		require.NoError(t, q.SetLimits(t.Context(), l))
		testkit.Enqueue(t, q, 1, opts...)
		testkit.Enqueue(t, q, 2, opts...)
		come := due(t, q)
		require.True(t, come(), "the first one")
		return come
	}
}

// paused pauses q, or one of its keys, while a job waits.
func paused(key string) func(*testing.T, *honker.DB, jobs) arrival {
	return func(t *testing.T, _ *honker.DB, q jobs) arrival {
		testkit.Enqueue(t, q, 1, honker.Key("k"))
		_, err := q.Pause(t.Context(), &honker.PauseOptions{Key: key, Until: time.Now().Add(after)})
		require.NoError(t, err)
		return due(t, q)
	}
}

// again waits until an enqueue adds a new job instead of finding the first one.
func again(opts ...honker.EnqueueOption) func(*testing.T, *honker.DB, jobs) arrival {
	return func(t *testing.T, _ *honker.DB, q jobs) arrival {
		first := testkit.Enqueue(t, q, 1, opts...)
		require.NoError(t, testkit.ClaimOne(t, q).Ack(t.Context()))
		return func() bool { return testkit.Enqueue(t, q, 1, opts...) != first }
	}
}

// jobClock returns the cases for jobs, limits and unique keys.
func jobClock() clockCases {
	return clockCases{
		"Delay":      enqueued(honker.Delay(after)),
		"Debounce":   enqueued(honker.Debounce("k", after, 2*after)),
		"Throttle":   again(honker.Throttle("k", after)),
		"Unique.For": again(honker.Unique("k", &honker.Uniqueness{For: after})),
		"RetryAfter": handled(func(context.Context, *honker.Job[int]) error { return honker.RetryAfter(after, errCause) }),
		"Snooze":     handled(func(context.Context, *honker.Job[int]) error { return honker.Snooze(after) }),
		"SlowDown":   handled(func(context.Context, *honker.Job[int]) error { return honker.SlowDown(after, errCause) }),
		"Backoff":    handled(func(context.Context, *honker.Job[int]) error { return errCause }),
		"Job.Retry":  handled(func(ctx context.Context, job *honker.Job[int]) error { return job.Retry(ctx, after, errCause) }),
		"Job.Snooze": handled(func(ctx context.Context, job *honker.Job[int]) error { return job.Snooze(ctx, after) }),
		"Job.RetryTx": settledTx(func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			return job.RetryTx(ctx, tx, after, errCause)
		}),
		"Job.SnoozeTx": settledTx(func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			return job.SnoozeTx(ctx, tx, after)
		}),
		"Rate":      limited(honker.Limits{Rate: honker.Rate{N: 1, Per: after}}),
		"KeyRate":   limited(honker.Limits{KeyRate: honker.Rate{N: 1, Per: after}}, honker.Key("k")),
		"Pause":     paused(""),
		"Pause.Key": paused("k"),
		"RunAt": func(t *testing.T, _ *honker.DB, q jobs) arrival {
			testkit.Enqueue(t, q, 1, honker.RunAt(time.Now().Add(after)))
			return due(t, q)
		},
		"EnqueueMany": func(t *testing.T, _ *honker.DB, q jobs) arrival {
			_, err := q.EnqueueMany(t.Context(), []int{1, 2}, honker.Delay(after))
			require.NoError(t, err)
			return due(t, q)
		},
		"EnqueueTx": func(t *testing.T, db *honker.DB, q jobs) arrival {
			require.NoError(t, db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.EnqueueTx(ctx, tx, 1, honker.Delay(after))
				return err
			}))
			return due(t, q)
		},
		"honker_enqueue": func(t *testing.T, db *honker.DB, q jobs) arrival {
			testkit.QueryInt(t, db.SQL(), `SELECT honker_enqueue('jobs', '1', NULL, 3600, 0, 3, NULL)`)
			return due(t, q)
		},
		"ExpiresIn": func(t *testing.T, _ *honker.DB, q jobs) arrival {
			testkit.Enqueue(t, q, 1, honker.ExpiresIn(after))
			return func() bool { n, err := q.SweepExpired(t.Context()); require.NoError(t, err); return n > 0 }
		},
		"Lease": func(t *testing.T, _ *honker.DB, q jobs) arrival {
			testkit.Enqueue(t, q, 1)
			require.NoError(t, testkit.ClaimOneAs(t, q, keeper).Extend(t.Context(), after-time.Second))
			return due(t, q)
		},
		"JobInfo.Phase": func(t *testing.T, db *honker.DB, q jobs) arrival {
			id := testkit.Enqueue(t, q, 1, honker.Delay(after))
			return func() bool { return testkit.PhaseOf(t, db, id) == honker.PhaseReady }
		},
		"SaveResult": func(t *testing.T, db *honker.DB, q jobs) arrival {
			require.NoError(t, q.SaveResult(t.Context(), 1, "kept", after))
			return func() bool { _, err := honker.Result[string](t.Context(), db, 1); return err != nil }
		},
		"Outbox": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			o := honker.NewOutbox(db, "mail", func(context.Context, int) error { return nil }, nil)
			_, err := o.Send(t.Context(), 1, honker.Delay(after))
			require.NoError(t, err)
			return due(t, o.Queue())
		},
	}
}

// otherClock returns the cases for streams, messages, schedules, locks, rates and maintenance.
func otherClock() clockCases {
	return clockCases{
		"Delivery.Extend": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			events := honker.NewStream[int](db, "audit", nil)
			testkit.Publish(t, events, 1)
			g := events.Group("g", nil)
			claimed := members(t, g, keeper, "other")
			held := claimed[keeper]()
			require.Len(t, held, 1)
			require.NoError(t, held[0].Extend(t.Context(), after-time.Second))
			return func() bool { return len(claimed["other"]()) > 0 }
		},
		"Delivery.Nack": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			events := honker.NewStream[int](db, "audit", nil)
			testkit.Publish(t, events, 1)
			claim := members(t, events.Group("g", &honker.GroupOptions{Lease: 2 * after, Backoff: honker.Constant(after)}), "m")["m"]
			require.NoError(t, claim()[0].Nack(t.Context(), errCause))
			return func() bool { return len(claim()) > 0 }
		},
		"Retention": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			events := honker.NewStream[int](db, "audit", nil)
			require.NoError(t, events.SetRetention(t.Context(), honker.Retention{MaxAge: after - time.Second}))
			testkit.Publish(t, events, 1)
			return func() bool { s, err := events.Compact(t.Context()); require.NoError(t, err); return s.Deleted > 0 }
		},
		"PruneNotifications": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			testkit.Notify(t, db, "news", 1)
			return func() bool {
				n, err := db.PruneNotifications(t.Context(), after-time.Second, -1)
				require.NoError(t, err)
				return n > 0
			}
		},
		"Schedule": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			testkit.Register(t, db, testkit.Every("hourly", "@every 1h"))
			return func() bool { return len(testkit.Tick(t, db, time.Now())) > 0 }
		},
		"RateLimit": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			allow := func() bool {
				ok, err := db.RateLimit("mails", 1, after).Allow(t.Context())
				require.NoError(t, err)
				return ok
			}
			require.True(t, allow())
			return allow
		},
		"SweepRateLimits": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			_, err := db.RateLimit("mails", 1, time.Minute).Allow(t.Context())
			require.NoError(t, err)
			return func() bool {
				n, err := db.SweepRateLimits(t.Context(), after-time.Second)
				require.NoError(t, err)
				return n > 0
			}
		},
		"Lock": func(t *testing.T, db *honker.DB, _ jobs) arrival {
			testkit.Exec(t, db, `INSERT INTO _honker_locks (name, owner, expires_at) VALUES ('migrate', 'died', ?)`, time.Now().Add(after).Unix())
			return func() bool {
				lock, err := db.TryLock(t.Context(), "migrate", nil)
				return err == nil && lock.Unlock(t.Context()) == nil
			}
		},
		"Maintain": func(t *testing.T, db *honker.DB, q jobs) arrival {
			require.NoError(t, q.SaveResult(t.Context(), 1, "kept", after))
			return func() bool {
				require.NoError(t, db.Maintain(t.Context(), &honker.MaintainOptions{Once: true}))
				return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`) == 0
			}
		},
	}
}

// members joins g under several names and returns a claim function for each name.
func members(t *testing.T, g *honker.Group[int], names ...string) map[string]func() []*honker.Delivery[int] {
	t.Helper()
	claims := make(map[string]func() []*honker.Delivery[int])
	for _, name := range names {
		m, err := g.Join(t.Context(), name)
		require.NoError(t, err)
		t.Cleanup(func() { _ = m.Leave(context.Background()) })
		claims[name] = func() []*honker.Delivery[int] {
			claimed, err := m.Claim(t.Context(), 10)
			require.NoError(t, err)
			return claimed
		}
	}
	return claims
}

// Every method uses the bubble's clock rather than SQLite's.
func TestBubble_Clock(t *testing.T) {
	testkit.FileOnly(t)
	for _, cases := range []clockCases{jobClock(), otherClock()} {
		for name, begin := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
					q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(after)})
					come := begin(t, db, q)
					require.False(t, come(), "at once")
					time.Sleep(after - time.Second)
					require.False(t, come(), "a second before")
					time.Sleep(time.Second)
					require.True(t, come(), "at the time")
				})
			})
		}
	}
}

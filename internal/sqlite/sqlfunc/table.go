// Package sqlfunc implements honker's SQL functions, compatible with other bindings. Each function
// checks its arguments, calls the store and writes JSON. All rules are in the store, so a function
// behaves like the corresponding Go method.
package sqlfunc

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// function describes an SQL function. effect tells the engine whether the function needs the write lock or a
// savepoint around several writes.
type function struct {
	name   string
	params string // honker's signature; ? marks parameters that may be NULL
	effect sqlite.Effect
	body   func(c call) (driver.Value, error)
}

// table contains every function except honker_bootstrap. A name may occur more than once, since
// SQLite distinguishes functions by name and number of parameters.
var table = []function{
	{"notify", "channel TEXT, payload TEXT", sqlite.WritesOnce, sendMessage},

	{"honker_enqueue", "queue TEXT, payload TEXT, run_at INTEGER?, delay INTEGER?, priority INTEGER, max_attempts INTEGER, expires INTEGER?",
		sqlite.WritesOnce, enqueue},
	{"honkerx_enqueue", "queue TEXT, payload TEXT, options_json TEXT?", sqlite.Writes, enqueueWith},
	{"honker_claim_batch", "queue TEXT, worker_id TEXT, n INTEGER, timeout_s INTEGER", sqlite.Writes, claimBatch},
	{"honker_ack", "job_id INTEGER, worker_id TEXT", sqlite.WritesOnce, ack},
	{"honker_ack_batch", "ids_json TEXT, worker_id TEXT", sqlite.WritesOnce, ackBatch},
	{"honker_retry", "job_id INTEGER, worker_id TEXT, delay_s INTEGER, error TEXT", sqlite.Writes, retry},
	{"honker_fail", "job_id INTEGER, worker_id TEXT, error TEXT", sqlite.Writes, fail},
	{"honker_heartbeat", "job_id INTEGER, worker_id TEXT, extend_s INTEGER", sqlite.WritesOnce, heartbeat},
	{"honker_cancel", "job_id INTEGER", sqlite.WritesOnce, cancel},
	{"honker_get_job", "job_id INTEGER", sqlite.Reads, getJob},
	{"honker_sweep_expired", "queue TEXT", sqlite.Writes, sweepExpired},
	{"honker_queue_next_claim_at", "queue TEXT", sqlite.Reads, queueNextClaimAt},

	{"honker_result_save", "job_id INTEGER, value TEXT, ttl_s INTEGER", sqlite.WritesOnce, resultSave},
	{"honker_result_get", "job_id INTEGER", sqlite.Reads, resultGet},
	{"honker_result_sweep", "", sqlite.WritesOnce, resultSweep},

	{"honker_stream_publish", "topic TEXT, key TEXT?, payload TEXT", sqlite.WritesOnce, streamPublish},
	{"honker_stream_read_since", "topic TEXT, offset INTEGER, limit INTEGER", sqlite.Reads, streamReadSince},
	{"honker_stream_save_offset", "consumer TEXT, topic TEXT, offset INTEGER", sqlite.Writes, streamSaveOffset},
	{"honker_stream_get_offset", "consumer TEXT, topic TEXT", sqlite.Reads, streamGetOffset},

	{"honker_lock_acquire", "name TEXT, owner TEXT, ttl_s INTEGER", sqlite.Writes, lockAcquire},
	{"honker_lock_renew", "name TEXT, owner TEXT, ttl_s INTEGER", sqlite.WritesOnce, lockRenew},
	{"honker_lock_release", "name TEXT, owner TEXT", sqlite.WritesOnce, lockRelease},

	{"honker_rate_limit_try", "name TEXT, limit INTEGER, per INTEGER", sqlite.WritesOnce, rateLimitTry},
	{"honker_rate_limit_sweep", "older_than_s INTEGER", sqlite.WritesOnce, rateLimitSweep},

	{"honker_scheduler_register", "name TEXT, queue TEXT, cron_expr TEXT, payload TEXT, priority INTEGER, expires_s INTEGER?",
		sqlite.WritesOnce, schedulerRegister},
	{"honker_scheduler_register", "name TEXT, queue TEXT, cron_expr TEXT, payload TEXT, priority INTEGER, expires_s INTEGER?, max_attempts INTEGER",
		sqlite.WritesOnce, schedulerRegister},
	{"honker_scheduler_unregister", "name TEXT", sqlite.WritesOnce, schedulerUnregister},
	{"honker_scheduler_tick", "now_unix INTEGER", sqlite.Writes, schedulerTick},
	{"honker_scheduler_soonest", "", sqlite.Reads, schedulerSoonest},
	{"honker_scheduler_pause", "name TEXT", sqlite.WritesOnce, schedulerPause},
	{"honker_scheduler_resume", "name TEXT", sqlite.WritesOnce, schedulerResume},
	{"honker_scheduler_list", "", sqlite.Reads, schedulerList},
	{"honker_scheduler_update", "name TEXT, cron_expr TEXT?, payload TEXT?, priority INTEGER?, expires_s INTEGER?, touch_expires INTEGER",
		sqlite.WritesOnce, schedulerUpdate},
	{"honker_scheduler_update", "name TEXT, cron_expr TEXT?, payload TEXT?, priority INTEGER?, expires_s INTEGER?, touch_expires INTEGER, " +
		"max_attempts INTEGER?, touch_max_attempts INTEGER", sqlite.WritesOnce, schedulerUpdate},

	{"honker_cron_next_after", "expr TEXT, from_unix INTEGER", sqlite.Pure, cronNextAfter},
}

// Functions returns all SQL functions. ddl is the schema that honker_bootstrap creates.
func Functions(ddl string) []sqlite.Function {
	all := append([]function{{"honker_bootstrap", "", sqlite.Writes, bootstrap(ddl)}}, table...)
	out := make([]sqlite.Function, len(all))
	for i, f := range all {
		out[i] = f.bind()
	}
	return out
}

// call is a single function call. Its arguments have the signature's types. The clock is read once,
// so that all statements in a call use the same time.
type call struct {
	ctx  context.Context
	q    row.Querier
	time time.Time
	args []driver.Value
}

func (f function) bind() sqlite.Function {
	params := parse(f.params)
	run := func(ctx context.Context, q row.Querier, now time.Time, args []driver.Value) (driver.Value, error) {
		if err := accept(params, args); err != nil {
			return nil, err
		}
		return f.body(call{ctx, q, now, args})
	}
	return sqlite.Function{Name: f.name, Args: len(params), Effect: f.effect, Run: run}
}

func bootstrap(ddl string) func(call) (driver.Value, error) {
	return func(c call) (driver.Value, error) {
		return int64(1), schema.Bootstrap(c.ctx, c.q, ddl)
	}
}

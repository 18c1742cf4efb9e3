package moves

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// parcelBytes limits the payloads of a parcel. A single job may have more.
const parcelBytes = 4 << 20

// A job is linked if it has an edge or copies in legacy queues, is a member of a batch, or shares its unique key with a
// job that runs after it.
const (
	edged  = `EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = j.id) OR EXISTS (SELECT 1 FROM _honkerx_after WHERE job_id = j.id)`
	copied = `EXISTS (SELECT 1 FROM _honkerx_dispatch_twins WHERE job_id = j.id) OR EXISTS (SELECT 1 FROM _honkerx_dispatch_twins WHERE sent_id = j.id)`

	// A reply to a sent job has the ID of the job, or of its copy, at the end of its queue's name.
	repliedTo = `CAST(substr(j.queue, length(rtrim(j.queue, '0123456789')) + 1) AS INTEGER)`
	replies   = `rtrim(j.queue, '0123456789') GLOB '*` + row.DispatchLegacyReplyQueue + `' AND j.queue GLOB '*[0-9]'
    AND (rtrim(j.queue, '0123456789') GLOB '*` + row.DispatchReplyQueue + `' OR rtrim(j.queue, '0123456789') = '` + row.DispatchPrefix + row.DispatchLegacyReplyQueue + `'
      OR rtrim(j.queue, '0123456789') IS (SELECT substr(d.queue, 1, instr(d.queue, 'q:work:') - 1) || '` + row.DispatchLegacyReplyQueue + `'
        FROM _honkerx_dispatch_jobs AS d WHERE d.job_id = ifnull((SELECT sent_id FROM _honkerx_dispatch_twins WHERE job_id = ` + repliedTo + `), ` + repliedTo + `)))`

	sqlMoveNextLive = `SELECT j.id, j.queue, length(j.payload), s.batch IS NOT NULL OR ` + edged + ` OR ` + copied + `
  OR EXISTS (SELECT 1 FROM _honkerx_unique AS u WHERE u.queue = s.queue AND u.key = s.unique_key AND u.next_id IS NOT NULL), ` + replies + `
FROM _honker_live AS j LEFT JOIN _honkerx_job AS s ON s.job_id = j.id WHERE j.id > ?1 ORDER BY j.id LIMIT ?2 + 0`

	sqlMoveNextDead = `SELECT j.id, j.queue, length(j.payload), s.batch IS NOT NULL OR ` + edged + `, 0
FROM _honker_dead AS j LEFT JOIN _honkerx_dead_job AS s ON s.job_id = j.id WHERE j.id > ?1 ORDER BY j.id LIMIT ?2 + 0`

	sqlMoveNextBatch = `SELECT id, '', 0, 1, 0 FROM _honkerx_batches WHERE id > ?1 AND done_ms IS NULL ORDER BY id LIMIT ?2 + 0`

	// The queues of jobs, and whether they run.
	sqlMoveAre = `SELECT j.id, j.queue, coalesce(j.state = 'processing' AND j.claim_expires_at >= ?2, 0)
FROM json_each(?1) AS i CROSS JOIN _honker_live AS j ON j.id = i.value
UNION ALL SELECT j.id, j.queue, 0 FROM json_each(?1) AS i CROSS JOIN _honker_dead AS j ON j.id = i.value`
)

// sqlMoveJoined returns the nodes that are joined to a node by edges, batches, unique keys and copies of a sent job. A node is
// a job, or a batch below 0. The edges of a job that is gone join nothing: its waiters no longer wait for it.
const sqlMoveJoined = `WITH RECURSIVE joined (node) AS (
  SELECT ?1
  UNION SELECT e.waiter FROM joined CROSS JOIN _honkerx_after AS e ON e.job_id = joined.node WHERE joined.node > 0 AND ` + isThere + `
  UNION SELECT e.waiter FROM joined CROSS JOIN _honkerx_after AS e ON e.job_id = 0 AND e.batch = -joined.node WHERE joined.node < 0
  UNION SELECT iif(e.job_id = 0, -e.batch, e.job_id) FROM joined CROSS JOIN _honkerx_after AS e ON e.waiter = joined.node WHERE ` + isThere + `
  UNION SELECT -s.batch FROM joined CROSS JOIN _honkerx_job AS s ON s.job_id = joined.node WHERE s.batch IS NOT NULL
  UNION SELECT -s.batch FROM joined CROSS JOIN _honkerx_dead_job AS s ON s.job_id = joined.node WHERE s.batch IS NOT NULL
  UNION SELECT s.job_id FROM joined CROSS JOIN _honkerx_job AS s ON s.batch = -joined.node
  UNION SELECT s.job_id FROM joined CROSS JOIN _honkerx_dead_job AS s ON s.batch = -joined.node
  UNION SELECT t.job_id FROM joined CROSS JOIN _honkerx_dispatch_twins AS t ON t.sent_id = joined.node
  UNION SELECT t.sent_id FROM joined CROSS JOIN _honkerx_dispatch_twins AS t ON t.job_id = joined.node
  UNION SELECT u.job_id FROM joined CROSS JOIN _honkerx_job AS s ON s.job_id = joined.node
    CROSS JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key WHERE u.next_id IS NOT NULL
  UNION SELECT u.next_id FROM joined CROSS JOIN _honkerx_job AS s ON s.job_id = joined.node
    CROSS JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key WHERE u.next_id IS NOT NULL
) SELECT node FROM joined`

const isThere = `(joined.node < 0 OR EXISTS (SELECT 1 FROM _honker_live WHERE id = joined.node) OR EXISTS (SELECT 1 FROM _honker_dead WHERE id = joined.node))`

// candidate is a row that a pass looks at.
type candidate struct {
	id     int64
	queue  string
	size   int64
	linked bool
	reply  bool // of package dispatch
}

// parcel collects the ids of a parcel.
type parcel struct {
	jobs, batches []int64
	size          int64
	linked        bool // they are linked to each other, so they move together or not at all
}

// Take implements engine.MoveStore.
func (m Moves) Take(ctx context.Context, q row.Querier, token string, w row.MoveWalk, now time.Time) (p row.Parcel, after row.MoveWalk, err error) {
	if err := held(ctx, q, token); err != nil {
		return p, w, err
	}
	for w.Stage < row.MoveSchedules {
		page, err := m.page(ctx, q, w)
		if err != nil {
			return p, w, err
		}
		if len(page) == 0 {
			w.Stage, w.After = w.Stage+1, 0
			continue
		}
		var ids parcel
		if w, err = m.choose(ctx, q, page, w, &ids, now); err != nil {
			return p, w, err
		}
		text, err := m.textOf(ctx, q, &ids, w)
		if err != nil {
			return p, w, err
		}
		if len(ids.jobs)+len(ids.batches) == 0 {
			return p, w, nil // so that the lock is not held for long
		}
		if err := remove(ctx, q, ids.jobs, ids.batches); err != nil {
			return p, w, err
		}
		p, err = add(ctx, q, text)
		return p, w, err
	}
	if w.Stage == row.MoveSchedules {
		w.Stage = row.MoveOver
		p, err = takeSchedules(ctx, q, w.Queues)
	}
	return p, w, err
}

// page returns the next candidates.
func (Moves) page(ctx context.Context, q row.Querier, w row.MoveWalk) (page []candidate, err error) {
	query := map[row.MoveStage]string{row.MoveLive: sqlMoveNextLive, row.MoveDead: sqlMoveNextDead, row.MoveBatches: sqlMoveNextBatch}[w.Stage]
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var c candidate
		err := r.Scan(&c.id, (*rows.Text)(&c.queue), (*rows.Number)(&c.size), &c.linked, &c.reply)
		page = append(page, c)
		return err
	}, w.After, w.Limit)
	return page, err
}

// choose adds candidates to a parcel: up to the first that is linked, or the jobs that are linked to the first.
func (m Moves) choose(ctx context.Context, q row.Querier, page []candidate, w row.MoveWalk, to *parcel, now time.Time) (row.MoveWalk, error) {
	var plain []int64
	for _, c := range page {
		node := c.id
		if w.Stage == row.MoveBatches {
			node = -c.id
		}
		if w.Deferred[node] != 0 || !c.linked && !selected(w.Queues, c.queue) {
			w.After = c.id
			continue
		}
		if c.reply {
			w.After, w.Deferred[node] = c.id, row.MoveReply
			continue
		}
		if len(plain) > 0 && (c.linked || to.size >= parcelBytes) {
			break
		}
		if c.linked {
			w.After, to.linked = c.id, true
			nodes, err := rows.ReturnedIDs(ctx, q, sqlMoveJoined, 8, node)
			if err == nil {
				err = m.addAll(ctx, q, nodes, w, to, now)
			}
			if err != nil || len(to.jobs)+len(to.batches) > 0 {
				return w, err
			}
			continue
		}
		w.After = c.id
		plain, to.size = append(plain, c.id), to.size+c.size
	}
	are, err := m.are(ctx, q, plain, w.Queues, now)
	for _, id := range plain {
		if why := are[id]; why != 0 {
			w.Deferred[id] = why
		} else {
			to.jobs = append(to.jobs, id)
		}
	}
	return w, err
}

// addAll adds linked jobs and batches to a parcel, or defers all of them if any has to stay.
func (m Moves) addAll(ctx context.Context, q row.Querier, nodes []int64, w row.MoveWalk, to *parcel, now time.Time) error {
	are, err := m.are(ctx, q, nodes, w.Queues, now)
	if err != nil {
		return err
	}
	var why row.MoveDefer
	for _, id := range nodes {
		_, there := are[id]
		switch why = max(why, are[id]); {
		case id < 0:
			to.batches = append(to.batches, -id)
		case there:
			to.jobs = append(to.jobs, id)
		}
	}
	if why != 0 {
		to.jobs, to.batches = nil, nil
		for _, id := range nodes {
			w.Deferred[id] = why
		}
	}
	slices.Sort(to.jobs)
	return nil
}

// are returns why each of the jobs among nodes has to stay, or 0. It leaves out jobs that are gone.
func (Moves) are(ctx context.Context, q row.Querier, nodes []int64, queues []string, now time.Time) (map[int64]row.MoveDefer, error) {
	are := make(map[int64]row.MoveDefer, len(nodes))
	err := rows.Each(ctx, q, sqlMoveAre, func(r *sql.Rows) error {
		var id int64
		var queue rows.Text
		var runs bool
		err := r.Scan(&id, &queue, &runs)
		switch {
		case !selected(queues, string(queue)):
			are[id] = row.MoveUnlisted
		case runs:
			are[id] = row.MoveRuns
		default:
			are[id] = 0
		}
		return err
	}, rows.IDList(nodes), now.Unix())
	return are, err
}

func selected(queues []string, queue string) bool {
	return queues == nil || slices.Contains(queues, queue)
}

// textOf returns the text of a parcel. It takes jobs out that PostgreSQL cannot hold, and those linked to them.
func (Moves) textOf(ctx context.Context, q row.Querier, ids *parcel, w row.MoveWalk) (string, error) {
	text, fits, err := parcelOf(ctx, q, ids.jobs, ids.batches)
	if err != nil || fits {
		return text, err
	}
	var good []int64
	for _, id := range ids.jobs {
		_, fits, err := parcelOf(ctx, q, []int64{id}, nil)
		if err != nil {
			return "", err
		}
		if fits {
			good = append(good, id)
		} else {
			w.Deferred[id] = row.MoveText
		}
	}
	if ids.linked {
		for _, id := range ids.jobs {
			w.Deferred[id] = row.MoveText
		}
		for _, id := range ids.batches {
			w.Deferred[-id] = row.MoveText
		}
		good, ids.batches = nil, nil
	}
	ids.jobs = good
	text, _, err = parcelOf(ctx, q, ids.jobs, ids.batches)
	return text, err
}

const (
	sqlMoveSchedules = `SELECT json_object('schedules', json((SELECT json_group_array(json_object('name', t.name, 'queue', t.queue, 'spec', t.cron_expr,
  'payload', CAST(t.payload AS TEXT), 'priority', t.priority, 'expires', t.expires_s, 'next', t.next_fire_at, 'enabled', t.enabled, 'most', t.max_attempts,
  'missed', coalesce((SELECT missed FROM _honkerx_schedules WHERE name = t.name), 0)))
  FROM (SELECT * FROM _honker_scheduler_tasks WHERE ?1 IS NULL OR queue IN (SELECT value FROM json_each(?1)) ORDER BY rowid) AS t)))`

	sqlMoveDropSchedules = `DELETE FROM _honker_scheduler_tasks WHERE ?1 IS NULL OR queue IN (SELECT value FROM json_each(?1))`
)

// takeSchedules takes the schedules of the selected queues, as a parcel.
func takeSchedules(ctx context.Context, q row.Querier, queues []string) (p row.Parcel, err error) {
	var list any
	if queues != nil {
		list = rows.NameList(queues)
	}
	var text string
	if _, err := rows.One(ctx, q, sqlMoveSchedules, []any{list}, &text); err != nil {
		return p, err
	}
	n, err := rows.Affected(ctx, q, sqlMoveDropSchedules, list)
	if err != nil || n == 0 {
		return p, err
	}
	return add(ctx, q, text)
}

// Package notify contains the statements for notifications, and the triggers for older workers' messages.
package notify

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Notifications contains the statements for _honker_notifications.
type Notifications struct{}

const sqlNotify = `INSERT INTO _honker_notifications (channel, payload, created_at) VALUES (?1, ?2, ?3)`

// Insert adds a message and returns its ID.
func (Notifications) Insert(ctx context.Context, q row.Querier, channel, payload string, now time.Time) (int64, error) {
	return rows.Inserted(ctx, q, sqlNotify, 1, channel, payload, now.Unix())
}

// sqlLastNotification uses the primary key, from the end.
const sqlLastNotification = `SELECT coalesce(max(id), 0) FROM _honker_notifications`

// The subquery walks the index on (channel, id) for each channel. CROSS JOIN keeps the channels in the outer loop;
// the other order would read every message. The messages are then read by primary key. The IDs from several channels
// must be sorted, and sorting whole rows would keep their payloads in memory.
const sqlNotificationsSince = `SELECT id, channel, payload, created_at FROM _honker_notifications WHERE id IN (
  SELECT n.id FROM json_each(?1) AS k CROSS JOIN _honker_notifications AS n INDEXED BY _honker_notifications_recent
  WHERE n.channel = k.value AND n.id > ?2
  ORDER BY n.id LIMIT ?3 + 0)
ORDER BY id`

// Since reads up to limit messages sent to channels with IDs above after, in ID order. It stops at rows.PageBytes, so
// there may be more messages even if it returns fewer than limit.
func (Notifications) Since(ctx context.Context, q row.Querier, channels []string, after int64, limit int) ([]row.Notification, error) {
	var out []row.Notification
	size := 0
	err := rows.Each(ctx, q, sqlNotificationsSince, func(r *sql.Rows) error {
		var n row.Notification
		if err := r.Scan(&n.ID, &n.Channel, &n.Payload, (*rows.Second)(&n.CreatedAt)); err != nil {
			return err
		}
		out = append(out, n)
		if size += len(n.Payload); size >= rows.PageBytes {
			return rows.ErrPageFull
		}
		return nil
	}, rows.NameList(channels), after, limit)
	if errors.Is(err, rows.ErrPageFull) {
		err = nil
	}
	return out, err
}

var (
	sqlLastMessage = rows.SequenceOf("_honker_notifications")
	sqlMessageHead = rows.HeadOf(sqlLastMessage, sqlLastNotification)
)

// Head returns an ID such that all messages up to it are visible or deleted, and all messages that become visible
// later have larger IDs. Deleting messages does not lower it.
func (Notifications) Head(ctx context.Context, q row.Querier) (id int64, err error) {
	_, err = rows.One(ctx, q, sqlMessageHead, nil, (*rows.Number)(&id))
	return id, err
}

// sqlChannelsSince uses the primary key, starting at after.
var sqlChannelsSince = `SELECT coalesce((` + sqlLastMessage + `), 0), NULL, NULL UNION ALL SELECT * FROM
  (SELECT id, channel, '' FROM _honker_notifications WHERE id > ?1 ORDER BY id LIMIT ?2 + 0)`

// ChannelsSince returns the channels of up to limit messages with IDs above after, the number of these messages, and
// the last ID among them.
func (Notifications) ChannelsSince(ctx context.Context, q row.Querier, after int64, limit int) (channels row.Added, n int, last int64, err error) {
	return rows.AddedSince(ctx, q, sqlChannelsSince, after, limit)
}

// These statements use the primary key. IDs have gaps and don't tell a message's rank, so to apply the count,
// sqlSurplus steps over the newest rows.
const (
	sqlSurplus = `SELECT id FROM _honker_notifications WHERE id <=
  (SELECT id FROM _honker_notifications ORDER BY id DESC LIMIT 1 OFFSET ?1) LIMIT ?2 + 0`

	sqlDropNotifications = `DELETE FROM _honker_notifications WHERE id IN (SELECT value FROM json_each(?1))`
)

// Surplus returns the IDs of up to limit messages other than the newest keep, counted across all channels.
func (Notifications) Surplus(ctx context.Context, q row.Querier, keep, limit int) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, sqlSurplus, 0, keep, limit)
}

// Drop deletes messages by ID and returns how many it deleted. It needs no second check: a surplus message stays
// surplus, and IDs are never reused.
func (Notifications) Drop(ctx context.Context, q row.Querier, ids []int64) (int, error) {
	return rows.Affected(ctx, q, sqlDropNotifications, rows.IDList(ids))
}

const (
	whereOldMessages = ` FROM _honker_notifications WHERE created_at < ?1`

	sqlOldMessages  = `SELECT id` + whereOldMessages + ` LIMIT ?2 + 0`
	sqlDropMessages = `DELETE` + whereOldMessages + ` AND id IN (SELECT value FROM json_each(?2))`
)

// SweepMessages deletes the messages sent before a given time.
var SweepMessages = rows.RowSweep(sqlOldMessages, sqlDropMessages, time.Time.Unix)

// SurplusMessages returns the sweep of all messages but the newest keep, counted across all channels. Take needs no
// second check: a surplus message stays surplus, and IDs are never reused.
func SurplusMessages(keep int) engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, _ time.Time, limit int) ([]int64, error) {
			return Notifications{}.Surplus(ctx, q, keep, limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, _ time.Time, _ int) (row.Swept, error) {
			return rows.Swept(Notifications{}.Drop(ctx, q, ids))
		},
	}
}

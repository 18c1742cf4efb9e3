package sqlfunc

import (
	"database/sql/driver"
	"strings"

	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

func resultSave(c call) (driver.Value, error) {
	expires := int64(0)
	if ttl := c.integer(2); ttl > 0 {
		expires = c.in(ttl)
	}
	return result(1, jobs.Results{}.SaveUntil(c.ctx, c.q, c.integer(0), c.text(1), c.now(), expires))
}

func resultGet(c call) (driver.Value, error) {
	value, found, err := jobs.Results{}.Get(c.ctx, c.q, c.integer(0), c.now())
	if err != nil || !found {
		return nil, err
	}
	return value, nil
}

func resultSweep(c call) (driver.Value, error) {
	return count(jobs.Results{}.Sweep(c.ctx, c.q, c.now()))
}

func streamPublish(c call) (driver.Value, error) {
	return result(streams.Streams{}.Insert(c.ctx, c.q, c.text(0), c.args[1], c.text(2), c.time))
}

func streamReadSince(c call) (driver.Value, error) {
	events, err := streams.Streams{}.TopicEvents(c.ctx, c.q, c.text(0), c.integer(1), c.integer(2))
	if err != nil {
		return nil, err
	}
	return array(events, published), nil
}

func published(e streams.TopicEvent) []member {
	return []member{
		{"created_at", e.CreatedAt},
		{"key", readable(e.Key)},
		{"offset", e.Offset},
		{"payload", readable(e.Payload)},
		{"topic", e.Topic},
	}
}

// readable converts a BLOB stored by an application to text, replacing invalid UTF-8 with U+FFFD. Returning an error
// instead would keep consumers from reading any later events.
func readable(v any) any {
	if b, ok := v.([]byte); ok {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return v
}

func streamSaveOffset(c call) (driver.Value, error) {
	return done(streams.Consumers{}.SaveOffset(c.ctx, c.q, c.text(0), c.text(1), c.integer(2), c.time))
}

func streamGetOffset(c call) (driver.Value, error) {
	offset, _, err := streams.Consumers{}.Offset(c.ctx, c.q, c.text(0), c.text(1))
	return result(offset, err)
}

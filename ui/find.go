package ui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// findPage serves the search field of every page. It redirects to the job with the given ID, to the queue with the
// given name, or else to the jobs whose arguments contain the text.
func findPage(c *call) serve {
	text := strings.TrimSpace(c.params.text("text", maxText))
	return func() error {
		target, err := c.find(text)
		if err != nil {
			return err
		}
		c.w.Header().Set("Location", target)
		c.w.WriteHeader(http.StatusSeeOther)
		return nil
	}
}

func (c *call) find(text string) (string, error) {
	if id, err := strconv.ParseInt(strings.TrimPrefix(text, "#"), 10, 64); err == nil && id > 0 {
		return c.link("job", values("id", id)), nil
	}
	if text == "" {
		return c.link("jobs", nil), nil
	}
	queues, err := admin.Queues(c.ctx, c.db)
	if err != nil {
		return "", err
	}
	named := func(match func(name string) bool) bool {
		return slices.ContainsFunc(queues, func(q honker.QueueStats) bool { return match(q.Queue) && c.can("look", q.Queue) })
	}
	switch {
	case named(func(name string) bool { return name == text }):
		return c.link("queue", values("name", text)), nil
	case c.h.opts.Redact != nil, named(func(name string) bool { return strings.Contains(name, text) }):
		return c.link("queues", values("q", text)), nil
	}
	return c.link("jobs", values("contains", text)), nil
}

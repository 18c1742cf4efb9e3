package ui

import (
	"github.com/honker-go/honker/admin"
)

type locksPageData struct {
	Locks  []admin.LockInfo
	Limits []admin.RateInfo
	Queues []limitRow
}

type limitRow struct{ Queue, Limits string }

func locksPage(c *call) serve {
	return func() (err error) {
		d := &locksPageData{}
		if d.Locks, err = admin.Locks(c.ctx, c.db); err != nil {
			return err
		}
		if d.Limits, err = admin.RateLimits(c.ctx, c.db); err != nil {
			return err
		}
		queues, err := admin.Queues(c.ctx, c.db)
		if err != nil {
			return err
		}
		for _, q := range queues {
			if words := limitWords(q.Limits); words != "" {
				d.Queues = append(d.Queues, limitRow{q.Queue, words})
			}
		}
		v := view{name: "locks", nav: "locks", title: "Locks & limits", data: d}
		for _, l := range d.Locks {
			v.next = sooner(v.next, l.ExpiresAt)
		}
		return c.show(v)
	}
}

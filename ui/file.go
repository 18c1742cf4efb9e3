package ui

import (
	"time"

	"github.com/honker-go/honker/admin"
)

type filePageData struct {
	*admin.FileInfo
	Leaders *admin.LeaderInfo
	Check   check
	Free    int64 // percentage of all pages
}

func filePage(c *call) serve {
	return func() (err error) {
		d := &filePageData{Check: c.file.checker.result()}
		if d.FileInfo, err = admin.File(c.ctx, c.db); err != nil {
			return err
		}
		if d.Leaders, err = admin.Leaders(c.ctx, c.db); err != nil {
			return err
		}
		d.Free = 100 * d.FreePages / max(d.Pages, 1)
		v := view{name: "file", nav: "file", title: "File", data: d}
		if d.Check.Running {
			v.next = c.now.Add(time.Second) // a check ends without a commit
		}
		return c.show(v)
	}
}

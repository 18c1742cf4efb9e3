package ui

import (
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type filePageData struct {
	*admin.FileInfo
	Leaders *admin.LeaderInfo
	Check   outcome
	Vacuum  outcome
	Free    int64 // percentage of all pages
	Space   *space
}

// databasePageData is shown instead for a database on a server.
type databasePageData struct {
	*admin.DatabaseInfo
	Leaders *admin.LeaderInfo
	Check   outcome
	Bytes   int64 // of honker's tables
	Space   *space
}

func filePage(c *call) serve {
	return func() error {
		v, err := c.describe()
		if err != nil {
			return err
		}
		if c.file.check.result().Running || c.file.vacuum.result().Running {
			v.next = c.now.Add(time.Second) // they end without a commit
		}
		return c.show(v)
	}
}

// describe returns the page about the file, or about the database if it is not a file.
func (c *call) describe() (view, error) {
	leaders, err := admin.Leaders(c.ctx, c.db)
	if err != nil {
		return view{}, err
	}
	f := &filePageData{Leaders: leaders, Check: c.file.check.result(), Vacuum: c.file.vacuum.result()}
	if f.FileInfo, err = admin.File(c.ctx, c.db); err == nil {
		f.Free = 100 * f.FreePages / max(f.Pages, 1)
		if f.Space, err = c.space(f.Size); err == nil {
			f.Space.Steps = append(c.vacuumStep(f.FileInfo), f.Space.Steps...)
		}
		return view{name: "file", nav: "file", title: "File", data: f}, err
	}
	if !errors.Is(err, honker.ErrUnsupported) {
		return view{}, err
	}
	d := &databasePageData{Leaders: leaders, Check: f.Check}
	if d.DatabaseInfo, err = admin.Database(c.ctx, c.db); err != nil {
		return view{}, err
	}
	for _, t := range d.Tables {
		d.Bytes += t.Bytes
	}
	d.Space, err = c.space(d.Bytes)
	return view{name: "database", nav: "file", title: "Database", data: d}, err
}

//go:build unix

package faultvfs

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"

	"modernc.org/sqlite"
)

var hook = sync.OnceFunc(func() { sqlite.RegisterConnectionHook(setUp) })

// Autocheckpoint sets after how many pages of log those connections make a checkpoint
// that are opened from now on. SQLite's own number is 1000.
func (d *Disk) Autocheckpoint(pages int) {
	hook()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pages = pages
}

// setUp is called with each new connection of the process.
func setUp(c sqlite.ExecQuerierContext, dsn string) error {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil // it is no URL, so none of ours
	}
	mu.RLock()
	d := disks[filepath.Dir(u.Path)]
	mu.RUnlock()
	if d == nil {
		return nil
	}
	d.mu.Lock()
	pages := d.pages
	d.mu.Unlock()
	if pages > 0 {
		_, err = c.ExecContext(context.Background(), fmt.Sprint("PRAGMA wal_autocheckpoint=", pages), nil)
	}
	return err
}

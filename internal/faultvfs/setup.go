//go:build unix

package faultvfs

import (
	"context"
	"net/url"
	"path/filepath"
	"sync"

	"modernc.org/sqlite"
)

var hook = sync.OnceFunc(func() { sqlite.RegisterConnectionHook(setUp) })

// SetUp has a statement run first on each connection that is opened from now on.
func (d *Disk) SetUp(statement string) {
	hook()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first = statement
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
	first := d.first
	d.mu.Unlock()
	if first != "" {
		_, err = c.ExecContext(context.Background(), first, nil)
	}
	return err
}

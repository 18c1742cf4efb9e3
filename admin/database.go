package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// DatabaseInfo describes a database on a server. Sizes and numbers of rows are the server's estimates.
type DatabaseInfo struct {
	Version        string // of the server, for example "15.18"
	Started        time.Time
	Database       string
	Schema         string // that has honker's tables
	SchemaVersion  int    // version of honker's own schema
	Role           string
	Size           int64 // bytes of the whole database
	Connections    int64 // of all programs
	MaxConnections int64 // without those that are reserved for superusers
	Standby        bool  // the server is a standby, which only accepts reads

	// SeesSessions is whether the role may read the sessions of other roles. Without the right, [Problems] cannot tell
	// who holds locks and old snapshots. The remedy is GRANT pg_read_all_stats.
	SeesSessions bool

	Tables []TableSize // honker's tables, sorted by name
}

// TableSize describes a table on a server.
type TableSize struct {
	Name     string
	Rows     int64
	Dead     int64     // deleted rows that vacuum has not removed
	Bytes    int64     // with indexes
	Vacuumed time.Time // last vacuum; zero if unknown
}

// Database describes the database of a server: its versions and connections, and the sizes of honker's tables. It reads
// catalogs and statistics only, so it is quick. It returns [honker.ErrUnsupported] if the database is a file, which [File]
// describes, and [honker.ErrInvalid] if db is nil.
func Database(ctx context.Context, db *honker.DB) (*DatabaseInfo, error) {
	var x row.ServerState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		if s.Servers == nil {
			return fmt.Errorf("%w: the database is a file; use admin.File", honker.ErrUnsupported)
		}
		x, err = s.Servers.DescribeServer(ctx, q)
		return err
	})
	if err != nil {
		return nil, engine.Wrap("describe database", "", err)
	}
	info := &DatabaseInfo{Version: x.Version, Started: x.Started, Database: x.Database, Schema: x.Schema, SchemaVersion: int(x.SchemaVersion),
		Role: x.Role, Size: x.Size, Connections: x.Connections.Used, MaxConnections: x.Connections.Most, Standby: x.Standby,
		SeesSessions: x.SeesSessions, Tables: make([]TableSize, len(x.Tables))}
	for i, t := range x.Tables {
		info.Tables[i] = TableSize(t)
	}
	return info, nil
}

// IsFile reports whether the database is a file. [Backup], [File], [Schema] and [Vacuum] need a file, and [Database] a
// server.
func IsFile(db *honker.DB) bool {
	e, err := engineOf(db)
	if err != nil {
		return false
	}
	_, err = e.File("")
	return err == nil
}

// Now returns the time by the clock of the database, which jobs and events are dated by. Ages must be relative to it. For a
// file this is the clock of the machine, and for a server an estimate of the server's clock, made without a statement. Now
// returns the zero time if db is nil.
func Now(db *honker.DB) time.Time {
	if e, err := engineOf(db); err == nil {
		return e.Now()
	}
	return time.Time{}
}

// fileOf returns the backend as a file. If it is none, the error names the substitute.
func fileOf(e *engine.Engine, verb, instead string) (engine.File, error) {
	f, err := e.File(verb)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, instead)
	}
	return f, nil
}

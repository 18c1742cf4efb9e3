package row

import "time"

// FileState describes the database file, its schema and the settings of the connection.
type FileState struct {
	SQLite              string // library version
	Schema              int64  // version of honker's own schema; 0 if unknown
	Journal             string
	Synchronous         int64
	PageSize            int64 // bytes
	Pages, FreePages    int64
	ApplicationID, User int64
	Tables              []TableState
}

// TableState is the size of a table.
type TableState struct {
	Name string
	Rows int64 // rows counted, a lower bound if More is set
	More bool  // the count stopped before the end of the table
}

// Definition is the statement that created a table, index or trigger.
type Definition struct {
	Table, Name, Kind, SQL string
}

// AuditRow is an entry in the audit log.
type AuditRow struct {
	ID          int64     // increases with each entry; 0 for a new entry
	At          time.Time // to the millisecond
	Who, Remote string    // "" if unknown
	Verb        string
	Filter      string // JSON; "" if none
	N           int64  // number of changed objects
}

// Sizes holds estimates of the space that tables take.
type Sizes struct {
	Tables []TableBytes // honker's tables, sorted by name
	Other  int64        // bytes of all other tables
	Parts  []PartBytes  // of events by topic, and of jobs by queue; parts that a sample misses are absent
}

// TableBytes is the size of a table.
type TableBytes struct {
	Name           string
	Rows           int64
	Bytes, Indexes int64 // Bytes is without Indexes
}

// PartBytes is the space that the rows of a topic or queue take in a table, with indexes.
type PartBytes struct {
	Table, Name string
	Rows, Bytes int64
}

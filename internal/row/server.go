package row

import "time"

// ServerState describes a database on a server, and its schema with honker's tables.
type ServerState struct {
	Version       string // of the server, for example "15.18"
	Started       time.Time
	Database      string
	Schema        string
	Role          string
	SchemaVersion int64 // version of honker's own schema
	Size          int64 // bytes of the whole database
	Connections   Connections
	Standby       bool // the server is a standby, which only accepts reads
	SeesSessions  bool // the role may read the sessions of other roles
	Tables        []ServerTable
}

// ServerTable describes a table of honker's by the server's estimates.
type ServerTable struct {
	Name       string
	Rows, Dead int64     // approximate numbers of rows, and of deleted rows that have not been removed
	Bytes      int64     // with indexes
	Vacuumed   time.Time // last vacuum; zero if unknown
}

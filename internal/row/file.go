package row

// FileState is what SQLite and honker say of the file, and the settings of the connection.
type FileState struct {
	SQLite              string // version of the library
	Schema              int64  // of our own part; 0: unknown
	Journal             string
	Synchronous         int64
	PageSize            int64
	Pages, FreePages    int64
	ApplicationID, User int64
	Tables              []TableState
}

// TableState is a table of honker's.
type TableState struct {
	Name string
	Rows int64 // as many as were counted
	More bool  // there are others
}

// Definition is a statement that has made a table, or an index or trigger of one.
type Definition struct {
	Table, Name, Kind, SQL string
}

// AuditRow is a row of _honkerx_audit.
type AuditRow struct {
	ID, AtMS    int64
	Who, Remote string // "": unknown
	Verb        string
	Filter      string // JSON; "": none
	N           int64
}

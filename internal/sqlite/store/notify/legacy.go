package notify

import (
	_ "embed"

	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

//go:embed legacy.sql
var legacyDDL string

// LegacyMessages creates the triggers that make the jobs and events of a connection send the
// messages of honker up to 0.2.4: the word new, which is not JSON, on a channel of the queue or
// topic. These messages woke older workers. Newer workers watch for commits, as do those of 0.2.4.
//
// The triggers are temporary. They affect neither other connections nor the file.
var LegacyMessages = rows.SplitDDL(legacyDDL)

package notify

import (
	_ "embed"

	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

//go:embed legacy.sql
var legacyDDL string

// LegacyMessages creates triggers that make a connection's jobs and events send the messages that honker sent up to
// 0.2.4: the word new, which is not JSON, on a channel named after the queue or topic. These messages woke older
// workers. Newer workers, including those of 0.2.4, watch for commits instead.
//
// The triggers are temporary. They affect neither other connections nor the file.
var LegacyMessages = rows.SplitDDL(legacyDDL)

package testkit

import "github.com/honker-go/honker/internal/wake"

// bubbles means that the tests use the other database in testing/synctest bubbles, too.
var bubbles bool

// InBubbles makes the tests of this process use a server also in testing/synctest bubbles, if they run on one. Otherwise
// tests use a file there. TestMain must call InBubbles before Main.
func InBubbles() { bubbles = true }

// startServer starts the server, which a bubble cannot do. It does nothing on files.
var startServer = func() error { return nil }

// onFile reports whether the caller runs in a bubble that uses a file.
func onFile() bool { return wake.InBubble() && !bubbles }

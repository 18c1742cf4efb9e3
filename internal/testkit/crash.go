package testkit

// These variables are set if the tests run on a server.
var (
	makeDurable   func()
	crashServer   func() (bool, error)
	lostServer    func(error) bool
	serverVersion func() (string, error)
	dumpServer    func(path, to string) error
)

// Durable makes the server of this process keep acknowledged commits when it crashes, which costs each commit a write. A
// program that crashes its server must call Durable before it opens a database. On files it does nothing.
func Durable() {
	if makeDurable != nil {
		makeDurable()
	}
}

// CrashServer ends the server of the tests without a shutdown and starts it again. It returns false if the tests run on
// files or if this process has not started the server.
func CrashServer() (crashed bool, err error) {
	if crashServer == nil {
		return false, nil
	}
	return crashServer()
}

// LostServer reports whether err says that a server has ended or is starting, or that the answer to a commit was lost. On
// files it returns false.
func LostServer(err error) bool { return lostServer != nil && lostServer(err) }

// DumpServer writes the statements of the database of path to a file. If the tests run on files it does nothing.
func DumpServer(path, to string) error {
	if dumpServer == nil {
		return nil
	}
	return dumpServer(path, to)
}

// ServerVersion returns the version of the server of the tests. On files it returns "".
func ServerVersion() (string, error) {
	if serverVersion == nil {
		return "", nil
	}
	return serverVersion()
}

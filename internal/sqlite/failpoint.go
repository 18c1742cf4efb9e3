package sqlite

// Failpoint is called before each statement of a wrapped connection, with its text:
// tests end the process there, between any two statements of whatever honker does. They
// set it before they open anything. It is nil in all that ships.
var Failpoint func(text string)

func (s *stmt) failpoint() {
	if Failpoint != nil {
		Failpoint(s.text)
	}
}

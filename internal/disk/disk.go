// Package disk measures the file systems that hold databases.
package disk

// Space returns the number of bytes that this process may still write to the file system containing
// dir, and the size of that file system in bytes. It returns errors.ErrUnsupported where the size
// cannot be read. Space is a variable so that the results of tests do not depend on the machine.
var Space = space

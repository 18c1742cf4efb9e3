//go:build linux || darwin

package presence

var StartOf = startOf

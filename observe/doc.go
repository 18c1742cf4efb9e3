// Package observe has the events by which a program follows honker: for metrics, traces and tests.
//
// Set the functions of an [Observer] for the events of interest, and pass it as Options.Observer of package honker. Use
// [Observers] to combine several. The events report the work of this process only; package admin reads the state of
// the file, which all processes share.
package observe

// Package observe defines the events that honker reports to a program, for metrics, traces and tests.
//
// Set the fields of an [Observer] for the events of interest, and pass it to package honker as Options.Observer. Use
// [Observers] to combine several. The events report only this process's work; package admin reads the state of the
// file, which all processes share.
package observe

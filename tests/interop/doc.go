// Package interop runs this library and honker's Python package in separate processes on a shared
// file. The tests are skipped unless the variable HONKER_PYTHON names a Python interpreter with the
// package installed. Run make interop to install the package and run the tests.
package interop

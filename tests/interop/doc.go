// Package interop runs this library beside honker's own Python package, as processes of their
// own on one file. Its tests are skipped unless HONKER_PYTHON names a Python that has the
// package: make interop installs it, and runs them.
package interop

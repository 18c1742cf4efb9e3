// Package uitest tests the dashboard of package ui in a browser. It contains only tests, which also create the
// pictures in docs/images. The tests use the Chromium binary named by the HONKER_CHROMIUM environment variable or,
// if it isn't set, a Chromium found in PATH. If there is none, the tests are skipped.
package uitest

// Package uitest tests the dashboard of package ui in a browser. It has no code besides its tests, which also make the
// pictures in docs/images. The tests use the Chromium binary named by the environment variable HONKER_CHROMIUM, or a
// Chromium in the path. If there is none, they are skipped.
package uitest

// Package uitest holds no code: its tests look at the dashboard of package ui with a browser, and make the
// pictures of docs/images. They need a Chromium: the one that HONKER_CHROMIUM names, or one of those that
// the path has; without one they are skipped.
package uitest

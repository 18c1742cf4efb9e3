package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Output without line endings is forwarded in parts while the command runs, and only the end of it is kept.
func TestEnding_LongLine(t *testing.T) {
	t.Parallel()
	for _, part := range []string{strings.Repeat("x", 32<<10), "50 %\r", strings.Repeat("\x00", 100), strings.Repeat("y", 200<<10)} {
		var passed bytes.Buffer
		e := &ending{to: &together{w: &passed}, most: maxErrors}
		var written int
		for written < 4<<20 {
			n, err := e.Write([]byte(part))
			require.NoError(t, err)
			written += n
			require.GreaterOrEqual(t, passed.Len(), written-maxLine, "%.10q", part)
			require.Less(t, cap(e.line)+cap(e.text), 8*maxLine, "%.10q", part)
		}
	}
}

// Lines are forwarded whole even if they are written in parts. The last bytes become the job's error.
func TestEnding_Lines(t *testing.T) {
	t.Parallel()
	var passed bytes.Buffer
	e := &ending{to: &together{w: &passed}, most: 8}
	for _, step := range []struct{ write, passed string }{
		{"one", ""}, {" line\n", "one line\n"}, {"two\r\nthr", "two\r\n"}, {"ee", ""}, {"\r1\r2", "three\r1\r"}, {"\n", "2\n"}, {"end", ""},
	} {
		passed.Reset()
		_, err := e.Write([]byte(step.write))
		require.NoError(t, err)
		require.Equal(t, step.passed, passed.String(), "%q", step.write)
	}
	passed.Reset()
	require.Equal(t, "1\r2\nend", e.rest())
	require.Equal(t, "end\n", passed.String())
}

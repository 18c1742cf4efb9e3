package admin

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Errors that differ only in numbers, IDs, quoted strings and addresses have the same fingerprint.
func TestFingerprint_Kinds(t *testing.T) {
	for kind, texts := range map[string][]string{
		`dial tcp #: refused`:         {"dial tcp 10.0.0.1:80: refused", "dial tcp [::1]:8080: refused", "  dial tcp 10.1.2.3:5: refused\nstack"},
		`order # not found`:           {"order 17 not found", "order 4711 not found", "order 0xdeadbeef not found", "order f47ac10b-58cc-4372-a567-0e02b2c3d479 not found", "order 9fceb02d0ae598e95dc970b74767f19372d61af8 not found"},
		`no such file "…"`:            {`no such file "a"`, `no such file 'b c'`, "no such file `d`"},
		`mail to @ failed`:            {"mail to anna@example.com failed", "mail to b.c+d@x.example.org failed"},
		`get :// status #`:            {"get https://example.com/a?b=1: status 500"},
		`rm /var/tmp/#: denied`:       {"rm /var/tmp/101b: denied", "rm /var/tmp/7: denied", "rm /var/tmp/a-12-b.lock: denied", "rm  /var/tmp/9f3: denied"},
		`open C:\tmp\#`:               {`open C:\tmp\x1`, `open C:\tmp\x2.txt`},
		`commit # of # files`:         {"commit 10a of 3 files", "commit c0ffee1 of 12 files", "commit 7 of 1000 files"},
		`timeout after #s`:            {"timeout after 1.5s", "timeout after 30s", "timeout after 100.25s"},
		`defaced facade beaded words`: {"defaced facade beaded words"},
		``:                            {"", "\n\n"},
	} {
		for _, text := range texts {
			require.Equal(t, kind, kindOf(text), text)
			require.Equal(t, fingerprint(texts[0]), fingerprint(text))
		}
	}
	require.Len(t, fingerprint("x"), 16)
	require.NotEqual(t, fingerprint("out of paper"), fingerprint("out of ink"))
}

// The parts of an error make up its first line, and the parts that vary are told apart.
func TestErrorParts(t *testing.T) {
	for text, want := range map[string]string{
		"rm /var/tmp/101b: no such file": "rm /var/tmp/[101b]: no such file",
		"dial tcp 10.0.0.1:80: refused":  "dial tcp [10.0.0.1:80]: refused",
		`  template "a b" line 17  `:     `template ["a b"] line [17]`,
		"out of  paper\nat line 7":       "out of  paper",
		"17":                             "[17]",
		"":                               "",
	} {
		var got strings.Builder
		for _, p := range ErrorParts(text) {
			if p.Varies {
				got.WriteString("[" + p.Text + "]")
			} else {
				got.WriteString(p.Text)
			}
		}
		require.Equal(t, want, got.String())
	}
}

// Every text has a stable fingerprint, kindOf is idempotent, and a pattern that the byte check skips
// would not have matched.
func FuzzFingerprint(f *testing.F) {
	for _, text := range []string{"", "a\x00\xff", `"`, "[::1", "é…", "0x", "1e5, 2:3", "'", "`", "[::]", "10.0.0.1", "0Xf", "deadbee1", "a@b.c", "a://b", "a\tb\f\rc", "/tmp/1", `C:\1`, "a1b2",
		"f47ac10b-58cc-4372-a567-0e02b2c3d479"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kind, again := kindOf(text), fingerprint(strings.Clone(text))
		var line strings.Builder
		for _, p := range ErrorParts(text) {
			line.WriteString(p.Text)
		}
		if line.String() != firstLine(text) {
			t.Fatalf("%q: parts make %q", text, line.String())
		}
		for _, v := range varying {
			if v.pattern.MatchString(text) && !strings.ContainsAny(text, v.has) {
				t.Fatalf("%q has none of %q", text, v.has)
			}
		}
		if !utf8.ValidString(kind) || fingerprint(text) != again || len(fingerprint(text)) != 16 {
			t.Fatalf("%q: %q", text, kind)
		}
		if fingerprint(text+"\nat line 7") != fingerprint(text) && len(text) > 0 && kind != "" {
			t.Fatalf("%q: the second line counts", text)
		}
	})
}

package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/honker-go/honker/internal/engine"
	"github.com/stretchr/testify/require"
)

// For a directory such as /proc, which exists but in which files can't be created, the error doesn't claim that it is
// missing.
func TestPath_Resolve_FolderWithoutFiles(t *testing.T) {
	_, err := resolve("/proc/honker-no-such-file.db", Config{})
	if runtime.GOOS != "linux" {
		t.Skip("no /proc")
	}
	require.ErrorIs(t, err, engine.ErrUnsupported)
	require.ErrorContains(t, err, "cannot create a file in directory /proc")
}

// Resolve rejects files that can't be shared.
func TestPath_Resolve_Unshareable(t *testing.T) {
	dir := t.TempDir()
	dangling := filepath.Join(dir, "dangling")
	require.NoError(t, os.Symlink(filepath.Join(dir, "nowhere"), dangling))
	for path, want := range map[string]error{
		"":                                    engine.ErrInvalid,
		"a\x00b":                              engine.ErrInvalid,
		"file:a.db":                           engine.ErrInvalid,
		":memory:":                            engine.ErrUnsupported,
		"file::memory:":                       engine.ErrUnsupported,
		"file:a?mode=memory":                  engine.ErrUnsupported,
		dir:                                   engine.ErrUnsupported,
		dangling:                              os.ErrNotExist,
		filepath.Join(dir, "missing", "a.db"): os.ErrNotExist,
	} {
		_, err := resolve(path, Config{})
		require.ErrorIs(t, err, want, "%q", path)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "refused, and nothing made")
}

// Resolve creates a file that only its owner can access.
func TestPath_Resolve_OwnerOnly(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	path := filepath.Join(dir, "a.db")
	got, err := resolve(path, Config{})
	require.NoError(t, err)
	require.Equal(t, path, got)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	// An existing file is left unchanged.
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o640))
	require.NoError(t, os.Chmod(path, 0o640))
	_, err = resolve(path, Config{})
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
}

// Resolve follows links, and starts at the working directory of the process.
func TestPath_Resolve_Links(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	t.Chdir(dir)
	got, err := resolve("a.db", Config{})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "a.db"), got)
	require.NoError(t, os.Mkdir("sub", 0o700))
	require.NoError(t, os.Symlink("../a.db", "sub/link"))
	got, err = resolve("sub/../sub/./link", Config{})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "a.db"), got, "the -wal lies beside the target")
}

// A replaced file is not written to.
func TestPath_ReplacedFile(t *testing.T) {
	path := file(t)
	c, pool := newPool(t, path, Config{})
	require.NoError(t, c.CheckIdentity())
	require.NoError(t, os.Rename(path, path+".old"))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	eventually(t, "it is noticed", func() bool { return errors.Is(c.CheckIdentity(), engine.ErrDatabaseReplaced) })
	_, err := pool.Exec(`INSERT INTO t (v) VALUES (1)`)
	require.ErrorIs(t, err, engine.ErrDatabaseReplaced)
	_, err = pool.Begin()
	require.ErrorIs(t, err, engine.ErrDatabaseReplaced)
	require.True(t, free(c))
}

// Check calls stat at most once every 100 ms, and CheckNow every time. Once a file is replaced, it stays replaced.
func TestIdentity_Check(t *testing.T) {
	path := file(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	i, err := NewIdentity(path)
	require.NoError(t, err)
	require.Equal(t, path, i.Path())
	require.True(t, os.SameFile(mustStat(t, path), i.Info()))
	require.NoError(t, i.Check())
	require.NoError(t, os.Rename(path, path+".old"))
	require.ErrorIs(t, i.CheckNow(), engine.ErrDatabaseReplaced)
	require.NoError(t, os.Rename(path+".old", path))
	require.ErrorIs(t, i.Check(), engine.ErrDatabaseReplaced)
	require.ErrorIs(t, i.CheckNow(), engine.ErrDatabaseReplaced)

	throttled, err := NewIdentity(path)
	require.NoError(t, err)
	throttled.checked.Store(int64(time.Hour)) // a check that is recent throughout the test
	require.NoError(t, os.Remove(path))
	require.NoError(t, throttled.Check())
	throttled.checked.Store(0)
	require.ErrorIs(t, throttled.Check(), engine.ErrDatabaseReplaced)
	_, err = NewIdentity(path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Setting the clock back doesn't delay the detection of a replaced file, because checks are timed by the monotonic
// clock.
func TestIdentity_Check_ClockSetBack(t *testing.T) {
	path := file(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	i, err := NewIdentity(path)
	require.NoError(t, err)
	require.NoError(t, i.Check())
	i.now = func() time.Time { return setBack(t, time.Now().Add(time.Second), time.Hour) }
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, i.Check(), engine.ErrDatabaseReplaced)
}

// setBack returns the result of time.Now after the system's clock was set back by d: an earlier
// time of day, with an increasing monotonic reading.
func setBack(t *testing.T, now time.Time, d time.Duration) time.Time {
	t.Helper()
	before := now
	parts := (*struct {
		wall uint64 // seconds, starting at bit 30
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&now))
	parts.wall -= uint64(d/time.Second) << 30
	require.Equal(t, before.Unix()-int64(d/time.Second), now.Unix())
	require.Zero(t, now.Sub(before), "the monotonic reading is the same")
	return now
}

// Errors from opening a file name the cause.
func TestExplain_Errors(t *testing.T) {
	require.NoError(t, Explain(nil, "x.db"))
	require.Equal(t, errOdd, Explain(errOdd, "x.db"))
	for code, text := range map[coded]string{codeReadOnly: "x.db is read-only", codeReadOnly | 5<<8: "x.db is read-only", codeNotADB: "x.db is not a SQLite database", codeCorrupt: "x.db is damaged", codeCorrupt | 1<<8: "x.db is damaged"} {
		err := Explain(code, "x.db")
		require.ErrorIs(t, err, engine.ErrUnsupported)
		require.ErrorIs(t, err, code)
		require.ErrorContains(t, err, text)
		require.Equal(t, err, Explain(err, "x.db"), "once")
	}
}

var awkward = []string{
	"plain.db", "with space.db", "q?x#y%41.db", "a%00b", "a?mode=ro", "?", "#", "%", "%%", "%2e%2e", "a&b=c", "a+b", "ü€😀.db",
	"a'b\"c`d", "line\nbreak", "tab\t", "back\\slash", "semi;colon", "a:b", "-dash", "~", "$HOME", "a\x01b", "\xff\xfe invalid",
	"[x]", "{x}", "a|b", "a?_pragma=foreign_keys(0)&vfs=x", "?vfs=none", "a.db?cache=shared#frag", strings.Repeat("n", 200),
	"file", "memory", ".hidden", "...", "a.db-wal.db", "*", "!x", "@", "=", ",", "(x)", "<x>", "^",
}

// Opening a path opens exactly that file.
func TestPath_ExactFile(t *testing.T) {
	for _, name := range awkward {
		requireOpensExactly(t, name)
	}
}

// requireOpensExactly checks that opening name creates only the file and its two companions in a
// directory, and that written data can be read again.
func requireOpensExactly(t *testing.T, name string) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "d")
	require.NoError(t, err)
	c, err := NewConnector(filepath.Join(dir, name), Config{BusyTimeout: patient})
	require.NoError(t, err, "%q", name)
	pool := sql.OpenDB(c)
	defer pool.Close()
	perform(t, pool, `CREATE TABLE t (v)`, `INSERT INTO t VALUES (7)`)
	require.Equal(t, []int64{7}, values(t, pool))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		got := strings.TrimSuffix(strings.TrimSuffix(e.Name(), "-wal"), "-shm")
		if e.Name() != name {
			require.Equal(t, name, got, "%q was made", e.Name())
		}
	}
	info, err := os.Stat(filepath.Join(dir, name))
	require.NoError(t, err, "%q", name)
	require.True(t, os.SameFile(info, c.Identity().Info()))
	require.NoError(t, pool.Close())
	require.NotZero(t, mustStat(t, filepath.Join(dir, name)).Size(), "%q is empty: something else was written", name)
}

func mustStat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info
}

// FuzzPath_ExactFile checks that a path opens exactly that file.
func FuzzPath_ExactFile(f *testing.F) {
	for _, name := range awkward {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		// Skip strings that are not file names, and names that are rejected explicitly.
		if name == "" || name == "." || name == ".." || len(name) > 200 || strings.ContainsAny(name, "/\x00") ||
			strings.Contains(name, ":memory:") {
			t.Skip()
		}
		requireOpensExactly(t, name)
	})
}

// If stat fails, Check returns its error, and a later check finds the file again.
func TestIdentity_Unknown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "x.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	i, err := NewIdentity(path)
	require.NoError(t, err)
	require.NoError(t, os.Rename(dir, dir+" elsewhere"))
	require.NoError(t, os.Symlink(dir, dir)) // leads nowhere, even for root
	for _, check := range []func() error{i.CheckNow, i.Check} {
		require.ErrorIs(t, check(), syscall.ELOOP)
		require.NotErrorIs(t, check(), engine.ErrDatabaseReplaced)
	}
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Rename(dir+" elsewhere", dir))
	require.NoError(t, i.CheckNow())
	require.NoError(t, i.Check())

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	require.ErrorIs(t, i.CheckNow(), engine.ErrDatabaseReplaced, "no directory any more")
}

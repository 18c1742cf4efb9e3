package arch_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSourcesKeepTheRules checks all files of the repository against all rules.
func TestSourcesKeepTheRules(t *testing.T) {
	all := sources(t)
	rooms := map[string]int{}
	for _, s := range all {
		rooms[s.room]++
	}
	for _, room := range []string{"", "internal/engine", "internal/sqlite", "internal/sqlite/store", "internal/worker", "task", "tests", "cmd", "honkertest"} {
		require.NotZero(t, rooms[room], "the walk has missed %q", room)
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		t.Run(name, func(t *testing.T) {
			for _, s := range all {
				for _, fault := range rules[name](s) {
					t.Errorf("%s %s", s.path, fault)
				}
			}
		})
	}
}

func TestEveryInternalPackageHasItsImports(t *testing.T) {
	for _, s := range sources(t) {
		if strings.HasPrefix(s.room, "internal/") {
			require.Contains(t, mayImport, s.room, "say in mayImport what %s may import", s.room)
		}
	}
}

// snippet is a file that breaks a rule. If fault is empty, the file comes close but is allowed.
type snippet struct {
	path, text, fault string
}

func imports(p string) string { return "import _ \"" + p + "\"\n" }

func literal(s string) string { return "const x = `" + s + "`\n" }

const ours = module

var snippets = map[string][]snippet{
	"imports": {
		{"internal/sqlite/store/x.go", imports(ours), "imports " + ours},
		{"internal/sqlite/store/x_test.go", imports(ours), "imports " + ours},
		{"internal/sqlite/store/x.go", imports(ours + "/honkertest"), "honkertest"},
		{"internal/sqlite/store/x.go", imports(ours + "/internal/sqlite/watch"), "internal/sqlite/watch"},
		{"internal/sqlite/store/x.go", imports(ours + "/internal/wake"), "internal/wake"},
		{"internal/sqlite/watch/x.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"internal/wake/x.go", imports(ours + "/internal/engine"), "internal/engine"},
		{"internal/engine/x.go", imports(ours), "imports " + ours},
		{"internal/engine/x.go", imports(ours + "/internal/worker"), "internal/worker"},
		{"internal/engine/x.go", imports(ours + "/internal/sqlite/watch"), "internal/sqlite/watch"},
		{"internal/worker/x.go", imports(ours), "imports " + ours},
		{"internal/worker/x.go", imports(ours + "/internal/sqlite/sqlfunc"), "internal/sqlite/sqlfunc"},
		{"internal/cron/x.go", imports(ours + "/internal/sqlite"), "internal/sqlite"},
		{"observe/x.go", imports(ours), "imports " + ours},
		{"observe/x.go", imports(ours + "/internal/engine"), "internal/engine"},
		{"internal/store/x.go", imports(ours + "/observe"), "observe"},
		{"internal/row/x.go", imports(ours + "/internal/wake"), "internal/wake"},
		{"internal/traffic/x.go", imports(ours + "/internal/sqlite/watch"), "internal/sqlite/watch"},
		{"internal/traffic/x.go", imports(ours + "/internal/sqlite/watch"), "internal/sqlite/watch"},
		{"internal/sqlite/sqlfunc/x.go", imports(ours + "/internal/sqlite/watch"), "internal/sqlite/watch"},
		{"internal/sqlite/x.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"internal/new/x.go", imports(ours + "/internal/sqlite"), "internal/sqlite"},
		{"internal/sqlite/store/x.go", imports(ours + "/internal/testkit"), "internal/testkit"},
		{"internal/testkit/x.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"internal/wake/x.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"x.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"x.go", imports(ours + "/internal/testkit"), "internal/testkit"},
		{"x.go", imports(ours + "/honkertest"), "honkertest"},
		{"x.go", imports(ours + "/task"), "task"},
		{"x.go", imports("modernc.org/sqlite"), "imports the driver"},
		{"internal/sqlite/store/x.go", imports("modernc.org/sqlite/lib"), "imports the driver"},
		{"internal/engine/x.go", imports("modernc.org/sqlite"), "imports the driver"},
		{"examples/a/main.go", imports("modernc.org/sqlite"), "imports the driver"},
		{"examples/a/main.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"examples/a/main.go", imports(ours + "/internal/engine"), "internal/engine"},
		{"cmd/honker/main.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"ui/x.go", imports(ours + "/internal/sqlite"), "internal/sqlite"},
		{"ui/x.go", imports(ours + "/internal/engine"), "internal/engine"},
		{"ui/x.go", imports(ours + "/relay"), "relay"},
		{"task/x.go", imports(ours + "/internal/sqlite/store"), "internal/sqlite/store"},
		{"relay/x.go", imports(ours + "/dispatch"), "dispatch"},
		{"dispatch/x.go", imports(ours + "/internal/sqlite/watch"), "internal/sqlite/watch"},
		{"honkertest/x.go", imports(ours + "/internal/testkit"), "internal/testkit"},
		{"honkertest/x.go", imports(ours + "/internal/sqlite"), "internal/sqlite"},

		{"open.go", imports(ours + "/internal/sqlite"), ""},
		{"x_test.go", imports(ours + "/internal/sqlite"), ""},
		{"x.go", imports(ours + "/internal/worker"), ""},
		{"x.go", imports(ours + "/observe"), ""},
		{"internal/engine/x.go", imports(ours + "/observe"), ""},
		{"ui/x.go", imports(ours + "/observe"), ""},
		{"observe/x.go", imports(ours + "/internal/contain"), ""},
		{"cmd/honker/x.go", imports(ours + "/observe"), ""},
		{"x_test.go", imports(ours + "/internal/testkit"), ""},
		{"x_test.go", imports(ours + "/honkertest"), ""},
		{"x_test.go", imports(ours + "/task"), ""},
		{"x_test.go", imports("modernc.org/sqlite"), ""},
		{"internal/cron/x_test.go", imports(ours + "/internal/testkit"), ""},
		{"internal/engine/x.go", imports(ours + "/internal/wake"), ""},
		{"internal/worker/x.go", imports(ours + "/internal/engine"), ""},
		{"internal/sqlite/watch/x.go", imports(ours + "/internal/wake"), ""},
		{"internal/sqlite/sqlfunc/x.go", imports(ours + "/internal/cron"), ""},
		{"internal/sqlite/x.go", imports("modernc.org/sqlite"), ""},
		{"internal/sqlite/store/x.go", imports(ours + "/internal/engine"), ""},
		{"internal/sqlite/store/x.go", imports(ours + "-extra"), ""},
		{"internal/testkit/x.go", imports(ours), ""},
		{"cmd/honker/x.go", imports(ours + "/cmd/honker/internal/table"), ""},
		{"task/x.go", imports(ours + "/internal/engine"), ""},
		{"relay/x.go", imports(ours + "/internal/engine"), ""},
		{"honkertest/x.go", imports(ours + "/internal/engine"), ""},
		{"examples/a/main.go", imports(ours + "/relay"), ""},
		{"docs/guide/x_test.go", imports(ours + "/relay"), ""},
		{"ui/x.go", imports(ours + "/honkertest"), ""},
		{"ui/x.go", imports(ours + "/admin"), ""},
	},
	"sql": {
		{"x.go", literal("SELECT id FROM _honker_live"), "has a statement"},
		{"x.go", literal("SELECT id\n\tFROM t"), "has a statement"},
		{"x.go", "const x = `SELECT id ` +\n\t(`FROM ` + table)\n", "has a statement"},
		{"x.go", "func f() { g(a + h(`DELETE FROM t`)) }\n", "has a statement"},
		{"x.go", literal("WITH a AS (SELECT 1) SELECT * FROM a"), "has a statement"},
		{"x.go", literal("INSERT OR REPLACE INTO t VALUES (1)"), "has a statement"},
		{"x.go", literal("UPDATE t SET a = 1"), "has a statement"},
		{"x.go", literal("CREATE UNIQUE INDEX i ON t(a)"), "has a statement"},
		{"x.go", literal("DROP TABLE t"), "has a statement"},
		{"x.go", literal("select id from _honker_live"), "has a statement"},
		{"internal/sqlite/x.go", literal("SELECT id FROM _honker_live"), "has a statement"},
		{"internal/sqlite/watch/x.go", literal("PRAGMA data_version"), "controls the connection"},
		{"x.go", literal("BEGIN IMMEDIATE"), "controls the connection"},
		{"x.go", literal("SAVEPOINT a"), "controls the connection"},
		{"x.go", literal("SELECT sqlite_version()"), "controls the connection"},
		{"ui/x.go", literal("SELECT total_changes()"), "controls the connection"},
		{"cmd/honker/x.go", literal("DELETE FROM t"), "has a statement"},
		{"internal/worker/x.go", literal("DELETE FROM t"), "has a statement"},
		{"task/x.go", literal("DELETE FROM t"), "has a statement"},

		{"x.go", literal("select a queue from the list, then update it and set the time"), ""},
		{"x.go", literal("delete from queue: no such job"), ""},
		{"x.go", "// SELECT id FROM t\n", ""},
		{"x_test.go", literal("SELECT id FROM t"), ""},
		{"internal/sqlite/store/x.go", literal("SELECT id FROM t"), ""},
		{"internal/sqlite/x.go", literal("PRAGMA data_version"), ""},
		{"internal/sqlite/x.go", literal("SELECT sqlite_version()"), ""},
		{"examples/a/x.go", literal("SELECT id FROM t"), ""},
		{"bench/x.go", literal("SELECT id FROM t"), ""},
		{"tests/torture/x.go", literal("SELECT id FROM t"), ""},
		{"internal/testkit/x.go", literal("SELECT id FROM t"), ""},
		{"honkertest/x.go", literal("SELECT id FROM t"), ""},
	},
	"files": {
		{"x.go", "import \"os\"\nvar f, _ = os.Open(`x`)\n", "uses os.Open"},
		{"x.go", "import \"os\"\nvar f, _ = os.ReadFile(`x`)\n", "uses os.ReadFile"},
		{"internal/sqlite/watch/x.go", "import \"os\"\nvar f = os.Create\n", "uses os.Create"},
		{"internal/sqlite/watch/x.go", "import sys \"os\"\nvar f, _ = sys.OpenFile(`x`, 0, 0)\n", "uses os.OpenFile"},
		{"internal/sqlite/watch/x.go", "import . \"os\"\nvar f, _ = Open(`x`)\n", "with a dot"},
		{"internal/sqlite/watch/x.go", "import \"syscall\"\nvar f, _ = syscall.Open(`x`, 0, 0)\n", "uses syscall.Open"},
		{"internal/sqlite/path.go", "import \"os\"\nvar f, _ = os.OpenFile(`x`, os.O_CREATE, 0)\n", "uses os.OpenFile"},
		{"internal/sqlite/path.go", "import \"os\"\nvar f, _ = os.Open(`x`)\n", "uses os.Open"},
		{"internal/sqlite/other.go", "import \"os\"\nvar f, _ = os.OpenFile(`x`, os.O_CREATE|os.O_EXCL, 0)\n", "uses os.OpenFile"},
		{"internal/sqlite/other.go", "import \"os\"\nvar f, _ = os.Open(w.log)\n", "uses os.Open"},
		{"internal/sqlite/writeback.go", "import \"os\"\nvar f, _ = os.Open(w.path)\n", "uses os.Open"},
		{"internal/sqlite/writeback.go", "import \"os\"\nvar f, _ = os.OpenFile(w.log, os.O_RDWR, 0)\n", "uses os.OpenFile"},
		{"internal/sqlite/filesystem_linux.go", "import \"os\"\nvar f, _ = os.ReadFile(path)\n", "uses os.ReadFile"},
		{"internal/sqlite/filesystem_linux.go", "import \"os\"\nvar f, _ = os.Open(mountinfo)\n", "uses os.Open"},

		{"internal/sqlite/filesystem_linux.go", "import \"os\"\nvar f, _ = os.ReadFile(mountinfo)\n", ""},
		{"internal/sqlite/path.go", "import \"os\"\nvar f, _ = os.OpenFile(`x`, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0)\n", ""},
		{"internal/sqlite/writeback.go", "import \"os\"\nvar f, _ = os.Open(w.log)\n", ""},
		{"internal/sqlite/watch/signals_linux.go", "import \"golang.org/x/sys/unix\"\nvar f, _ = unix.Open(`x`, 0, 0)\n", "uses golang.org/x/sys/unix.Open"},
		{"internal/sqlite/watch/signals_linux.go", "import \"golang.org/x/sys/unix\"\nvar f, _ = unix.Open(s.path(1), 0, 0)\n", ""},
		{"x.go", "import \"os\"\nvar f, _ = os.Stat(`x`)\n", ""},
		{"x.go", "import os \"example.com/os\"\nvar f, _ = os.Open(`x`)\n", ""},
		{"x_test.go", "import \"os\"\nvar f, _ = os.Open(`x`)\n", ""},
		{"cmd/honker/x.go", "import \"os\"\nvar f, _ = os.Open(`x`)\n", ""},
		{"internal/testkit/x.go", "import \"os\"\nvar f, _ = os.Open(`x`)\n", ""},
	},
	"postgres": {
		{"honkerpg/internal/pgstore/jobs/x.go", imports(ours + "/honkerpg/internal/pgstore"), "imports"},
		{"honkerpg/internal/pgstore/jobs/x.go", imports(ours + "/honkerpg/internal/pgstore/groups"), "imports"},
		{"honkerpg/internal/pgstore/pgsql/x.go", imports(ours + "/honkerpg/internal/pgstore/jobs"), "imports"},
		{"honkerpg/internal/pgstore/x.go", imports(ours + "/honkerpg/internal/pgbackend"), "imports"},
		{"honkerpg/internal/pgbackend/x.go", imports(ours + "/honkerpg"), "imports"},
		{"honkerpg/internal/pgbackend/x.go", imports(ours), "imports the root"},
		{"honkerpg/internal/pgstore/jobs/x.go", "import \"time\"\nvar now = time.Now()\n", "uses time.Now"},
		{"honkerpg/internal/pgstore/jobs/x.go", literal("SELECT id FROM honker.job WHERE run_at <= now()"), "asks the server"},

		{"honkerpg/internal/pgstore/groups/x.go", imports(ours + "/honkerpg/internal/pgstore/streams"), ""},
		{"honkerpg/internal/pgstore/groups/x.go", imports(ours + "/honkerpg/internal/pgstore/pgsql"), ""},
		{"honkerpg/internal/pgstore/x.go", literal("SELECT clock_timestamp()"), ""},
		{"honkerpg/internal/pgbackend/x.go", "import \"time\"\nvar now = time.Now()\n", ""},
		{"honkerpg/open.go", imports(ours + "/honkerpg/internal/pgbackend"), ""},
		{"honkerpg/internal/pgstore/jobs/x_test.go", imports(ours + "/honkerpg/internal/pgstore"), ""},
		{"honkerpg/internal/pgtest/x.go", imports(ours + "/internal/pgcluster"), ""},
	},
	"clock": {
		{"internal/sqlite/store/x.go", literal("SELECT id FROM t WHERE run_at <= unixepoch()"), "asks SQLite"},
		{"internal/sqlite/store/x.go", "const x = `SELECT id ` + due + ` AND a < unixepoch ()`\n", "asks SQLite"},
		{"internal/sqlite/store/x.go", literal("SELECT strftime('%s', 'now')"), "asks SQLite"},
		{"internal/sqlite/store/x.go", literal("SELECT CURRENT_TIMESTAMP"), "asks SQLite"},
		{"internal/sqlite/store/x.go", "import \"time\"\nvar now = time.Now()\n", "uses time.Now"},

		{"internal/sqlite/store/x.go", "// unixepoch() is for the others.\n", ""},
		{"internal/sqlite/store/x.go", literal("SELECT id FROM t WHERE run_at <= ?1"), ""},
		{"internal/sqlite/store/x_test.go", literal("SELECT unixepoch()"), ""},
		{"x.go", "import \"time\"\nvar now = time.Now()\n", ""},
	},
	"exports": {
		{"keeper.go", "type keeper struct{}\nfunc (k *keeper) Run() {}\n", "exports nothing"},
		{"keeper.go", "func (q *queue[T]) Run() {}\nvar limit = 1\n", "exports nothing"},
		{"keeper.go", "import \"time\"\nvar now = time.Now\n", "exports nothing"},

		{"queue.go", "type Queue[T any] struct{}\n", ""},
		{"queue.go", "type (queue struct{}; Queue struct{})\n", ""},
		{"queue.go", "func (q *Queue[T]) Claim() {}\n", ""},
		{"queue.go", "func (m *Map[K, V]) Get() {}\n", ""},
		{"queue.go", "func NewQueue() {}\n", ""},
		{"errors.go", "var hidden, ErrBusy error\n", ""},
		{"doc.go", "", ""},
		{"queue_test.go", "func helper() {}\n", ""},
		{"internal/worker/x.go", "type pool struct{}\n", ""},
	},
	"marks": {
		{"x_test.go", aboutFile("TestA", ""), "TestA is about the file"},
		{"tests/model/x_test.go", aboutFile("TestA", ""), "TestA is about the file"},
		{"relay/x_test.go", "func TestA(t *testing.T) { f(`PRAGMA ` + name) }\n", "TestA is about the file"},
		{"x_test.go", "func Test(t *testing.T) { f(`SELECT 1 FROM sqlite_schema`) }\n", "Test is about the file"},
		{"x_test.go", "func TestA(t *testing.T) { t.Run(`a`, func(t *testing.T) { f(`DROP TRIGGER _honkerx_gate`) }) }\n", "TestA is about the file"},
		{"x_test.go", aboutFile("TestA", "t.Parallel(); testkit.FileOnly(t)"), "internal/testkit.FileOnly"},
		{"x_test.go", aboutFile("helper", "testkit.FileOnly(t)"), "internal/testkit.FileOnly"},

		{"x_test.go", aboutFile("TestA", "testkit.FileOnly(t)"), ""},
		{"x_test.go", aboutFile("helper", ""), ""},
		{"x_test.go", aboutFile("ExampleA", ""), ""},
		{"x_test.go", "func TestA(t *testing.T) { f(`SELECT id FROM orders`) }\n", ""},
		{"task/x_test.go", "func TestA(t *testing.T) { f(`{\"__honker_task__\": {}}`) }\n", ""},
		{"tests/faults/x_test.go", aboutFile("TestA", ""), ""},
		{"relay/jetstream/x_test.go", aboutFile("TestA", ""), ""},
	},
}

// aboutFile is a function that begins with some statements and then reads a table of the file.
func aboutFile(name, begins string) string {
	return "import \"" + ours + "/internal/testkit\"\nfunc " + name + "(t *testing.T) { " + begins + "\nf(`SELECT id FROM _honker_locks`) }\n"
}

// TestArch_RulesFindBreaks checks that each rule detects the snippets that break it.
func TestArch_RulesFindBreaks(t *testing.T) {
	for name, check := range rules {
		require.NotEmpty(t, snippets[name], name)
		for _, c := range snippets[name] {
			faults := strings.Join(check(parse(t, c.path, false, "package x\n"+c.text)), "\n")
			if c.fault == "" {
				require.Empty(t, faults, "%s: %s: %s", name, c.path, c.text)
				continue
			}
			require.Contains(t, faults, c.fault, "%s: %s: %s", name, c.path, c.text)
		}
	}
}

// A nested module, such as a benchmark against other libraries, may import the driver.
func TestArch_NestedModules(t *testing.T) {
	text := "package x\n" + imports(driver) + imports(module+"/internal/sqlite/store")
	faults := importFaults(parse(t, "peers/x.go", true, text))
	require.Equal(t, []string{"imports " + module + "/internal/sqlite/store"}, faults)
}

// The nested test modules may import internal/testkit. Only tests/ may import internal/sqlite too.
func TestArch_TestModules(t *testing.T) {
	text := "package x\n" + imports(module+"/internal/testkit") + imports(module+"/internal/sqlite") + imports(module+"/internal/sqlite/store")
	require.Equal(t, []string{"imports " + module + "/internal/sqlite/store"}, importFaults(parse(t, "tests/faults/x.go", true, text)))
	require.ElementsMatch(t, []string{"imports " + module + "/internal/sqlite", "imports " + module + "/internal/sqlite/store"},
		importFaults(parse(t, "bench/micro/x.go", true, text)))
	require.Len(t, importFaults(parse(t, "examples/orm/x.go", true, text)), 3)
}

// The command imports exported packages only.
func TestArch_Command(t *testing.T) {
	text := "package x\n" + imports(module) + imports(module+"/admin") + imports(module+"/internal/engine") + imports(module+"/internal/sqlite/store")
	require.ElementsMatch(t, []string{"imports " + module + "/internal/engine", "imports " + module + "/internal/sqlite/store"},
		importFaults(parse(t, "cmd/honker/x.go", true, text)))
}

// The metrics modules import exported packages only.
func TestArch_Metrics(t *testing.T) {
	text := "package x\n" + imports(module) + imports(module+"/admin") + imports(module+"/internal/engine")
	require.Equal(t, []string{"imports " + module + "/internal/engine"}, importFaults(parse(t, "honkerprom/x.go", true, text)))
}

// The broker modules may import exported packages only, because applications can combine any
// version of them with any version of the root module.
func TestArch_BrokerModules(t *testing.T) {
	text := "package x\n" + imports(module) + imports(module+"/relay") + imports(module+"/internal/engine")
	require.Equal(t, []string{"imports " + module + "/internal/engine"}, importFaults(parse(t, "relay/jetstream/x.go", true, text)))
	require.Empty(t, importFaults(parse(t, "relay/http.go", false, text)))
}

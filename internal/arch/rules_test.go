package arch_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// rule returns the violations in a file.
type rule func(source) []string

var rules = map[string]rule{
	"imports":  importFaults,
	"sql":      sqlFaults,
	"files":    fileFaults,
	"clock":    clockFaults,
	"exports":  exportFaults,
	"marks":    markFaults,
	"postgres": pgFaults,
}

const (
	module = "github.com/honker-go/honker"
	driver = "modernc.org/sqlite"
)

// mayImport lists the packages of this module that a directory may import, besides itself. A package
// above the line imports none from below it.
var mayImport = map[string][]string{
	"internal/arch":           {},
	"internal/contain":        {},
	"internal/disk":           {},
	"internal/cron":           {},
	"internal/engine":         {"internal/wake", "internal/row", "internal/contain", "observe"},
	"internal/pgcluster":      {},
	"internal/presence":       {"internal/engine", "internal/row"},
	"internal/row":            {},
	"internal/sqlite":         {"internal/engine", "internal/row", "internal/wake"},
	"internal/sqlite/backend": {"internal/engine", "internal/row", "internal/sqlite/sqlfunc", "internal/sqlite", "internal/sqlite/store", "internal/wake", "internal/sqlite/watch"},
	"internal/sqlite/sqlfunc": {"internal/cron", "internal/engine", "internal/row", "internal/sqlite", "internal/sqlite/store"},
	"internal/sqlite/store":   {"internal/engine", "internal/row"},
	"internal/sqlite/watch":   {"internal/engine", "internal/sqlite", "internal/wake"},
	"internal/storetest":      {"internal/engine", "internal/row", "internal/wake"},
	"internal/testkit":        {"", "honkertest", "relay", "observe", "internal/disk", "internal/engine", "internal/pgcluster", "internal/wake", "honkerpg"},
	"internal/traffic":        {"internal/engine", "internal/row"},
	"internal/wake":           {"internal/row"},
	"internal/webhook":        {"internal/engine"},
	"internal/worker":         {"internal/engine", "internal/wake", "internal/row", "observe"},
}

// siblings are the packages that build on the root package. They reach the engine of a DB through
// engine.Of, so the root package does not have to export it.
var siblings = []string{"admin", "dispatch", "flow", "honkertest", "inbox", "relay", "seal", "task", "ui"}

// siblingMayImport lists the packages below internal/ that a sibling may import besides the engine.
// A sibling needs the wake or worker package for its waiters. admin imports seal to recognize sealed
// payloads.
var siblingMayImport = map[string][]string{
	"admin":      {"internal/disk", "internal/presence", "internal/traffic", "internal/wake", "seal", "internal/row"},
	"dispatch":   {"internal/wake", "internal/worker", "internal/row"},
	"flow":       {"internal/wake", "internal/worker", "internal/row"},
	"honkertest": {"flow", "internal/row"},
	"inbox":      {"internal/webhook", "internal/worker", "internal/contain"},
	"relay":      {"internal/wake", "internal/webhook", "internal/worker", "internal/row", "internal/contain"},
}

// exportedOnly lists siblings that may use only the exported API, like any application. If they
// need more, their imports should export it.
var exportedOnly = map[string][]string{"ui": {"admin", "flow", "seal"}}

// testRooms may be imported by tests only.
var testRooms = []string{"internal/arch", "internal/pgcluster", "internal/storetest", "internal/testkit"}

// nestedMayImport lists the imports of nested modules beyond the root package and honkertest.
// tests/ may also import the test helpers, internal/sqlite for stopping the library between two
// statements, and the packages under test. The command and the metrics use only exported packages,
// so other programs can do the same; seal is needed to recognize sealed payloads.
var nestedMayImport = map[string][]string{
	"cmd":        {"admin", "flow", "seal", "ui", "honkerprom", "honkerpg", "honkerpg/move"},
	"honkerotel": {"admin", "flow", "relay"},
	"honkerpg":   {"internal/engine", "internal/pgcluster", "internal/row", "internal/wake", "flow"},
	"honkerprom": {"admin", "flow"},
	"tests":      {"internal/sqlite", "internal/testkit", "admin", "dispatch", "flow", "inbox", "relay", "ui"},
	"bench":      {"internal/pgcluster", "internal/testkit", "admin", "dispatch", "flow", "honkerpg", "relay", "ui"},
	"examples":   {"honkerpg", "honkerprom"},
	"ui":         {"admin"},
}

// testsMayImport lists additional imports of a directory's tests. The tests of administrative
// functions need files written by these packages, tests of dispatch count jobs, tests of honkerpg look
// at a database as operators do, and other tests need the statements of a database.
var testsMayImport = map[string][]string{
	"internal/sqlite/store": {"internal/sqlite"},
	"internal/traffic":      {"internal/sqlite/store"},
	"internal/wake":         {"internal/sqlite/store"},
	"admin":                 {"dispatch", "relay"},
	"flow":                  {"admin"},
	"dispatch":              {"admin"},
	"honkerpg":              {"admin", "dispatch", "flow", "relay", "ui"},
	"cmd":                   {"dispatch", "relay"},
	"honkerprom":            {"dispatch", "flow", "relay"},
	"honkerotel":            {"dispatch", "flow"},
	"ui":                    {"dispatch", "flow", "relay"},
}

func importFaults(s source) (faults []string) {
	for _, p := range s.imports() {
		isDriver := p == driver || strings.HasPrefix(p, driver+"/")
		if isDriver && !s.test && !s.nested && s.room != "internal/sqlite" {
			faults = append(faults, "imports the driver")
		}
		if p != module && !strings.HasPrefix(p, module+"/") {
			continue
		}
		to := roomOf(strings.TrimPrefix(strings.TrimPrefix(p, module), "/"))
		if to != s.room && !s.mayEnter(to) {
			faults = append(faults, "imports "+p)
		}
	}
	return faults
}

// mayEnter reports whether s may import the directory to of this module.
func (s source) mayEnter(to string) bool {
	if s.test && (slices.Contains(testRooms, to) || slices.Contains(testsMayImport[s.room], to)) || s.nested && slices.Contains(nestedMayImport[s.room], to) {
		return true
	}
	if below(to) && !below(s.room) {
		return s.mayCross()
	}
	switch {
	case strings.HasPrefix(s.room, "internal/"):
		return slices.Contains(mayImport[s.room], to)
	case s.room == "observe": // the engine and the root import it
		return to == "internal/contain" || to == "internal/row" || s.test && to == ""
	case to == "observe":
		return true
	case s.room == "":
		return strings.HasPrefix(to, "internal/") && !slices.Contains(testRooms, to) || s.test && (to == "honkertest" || to == "task")
	case exportedOnly[s.room] != nil && !s.nested:
		return to == "" || to == "honkertest" || slices.Contains(exportedOnly[s.room], to)
	case slices.Contains(siblings, s.room) && !s.nested:
		return to == "" || to == "honkertest" || to == "internal/engine" || slices.Contains(siblingMayImport[s.room], to)
	case (s.room == "examples" || s.room == "docs") && slices.Contains(siblings, to):
		return true
	default: // everything else may import the same packages as an application
		return to == "" || to == "honkertest"
	}
}

var (
	// dataSQL matches statements in the style of this repository, with upper-case keywords.
	dataSQL = regexp.MustCompile(`(?s)\bSELECT\b.*\bFROM\b|\b(INSERT|REPLACE)\s+(OR\s+\w+\s+)?INTO\b|` +
		`\bUPDATE\b.*\bSET\b|\bDELETE\s+FROM\b|` +
		`\b(CREATE|DROP|ALTER)\s+(TEMP\s+|TEMPORARY\s+|UNIQUE\s+|VIRTUAL\s+)?(TABLE|INDEX|TRIGGER|VIEW)\b`)
	// anySQL matches statements in any style that name one of honker's tables.
	anySQL = regexp.MustCompile(`(?is)^\s*(select|insert|replace|update|delete|with|create|drop|alter)\b.*_honker`)
	// controlSQL matches statements that control the connection rather than read or write data.
	controlSQL = regexp.MustCompile(`^\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA|VACUUM|ATTACH|DETACH|ANALYZE)\b|` +
		`(?i)\bpragma\s+\w|\bsqlite_version\s*\(|\btotal_changes\s*\(`)
)

// applications lists the directories in which SQL is allowed: examples have their own tables, and
// tests inspect the file as other programs do.
var applications = []string{"examples", "bench", "tests", "honkertest", "internal/testkit"}

// pgStore is the directory of the statements for PostgreSQL.
const pgStore = "honkerpg/internal/pgstore/"

func sqlFaults(s source) (faults []string) {
	if s.test || s.room == "internal/sqlite/store" || strings.HasPrefix(s.path, pgStore) || slices.Contains(applications, s.room) {
		return nil
	}
	for _, text := range s.texts() {
		switch {
		case dataSQL.MatchString(text), anySQL.MatchString(text):
			faults = append(faults, "has a statement: "+text)
		case s.room != "internal/sqlite" && controlSQL.MatchString(text):
			faults = append(faults, "controls the connection: "+text)
		}
	}
	return faults
}

// opensFiles lists the calls that open files. Closing any descriptor of a database drops all POSIX
// locks of the process on it, after which acknowledged commits can be lost.
var opensFiles = map[string][]string{
	"os":                    {"Open", "OpenFile", "Create", "CreateTemp", "ReadFile", "WriteFile"},
	"syscall":               {"Open", "Openat"},
	"golang.org/x/sys/unix": {"Open", "Openat", "Openat2"},
}

func fileFaults(s source) (faults []string) {
	ours := s.room == "" || strings.HasPrefix(s.room, "internal/")
	if s.test || !ours || slices.Contains(testRooms, s.room) {
		return nil
	}
	allowed := map[*ast.SelectorExpr]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && mayOpen[s.path] != nil && mayOpen[s.path](call) {
			allowed[call.Fun.(*ast.SelectorExpr)] = true
		}
		return true
	})
	return s.uses(opensFiles, allowed)
}

var mayOpen = map[string]func(*ast.CallExpr) bool{
	"internal/presence/process_linux.go":     readsProc,
	"internal/sqlite/watch/signals_linux.go": opensSignal,
	"internal/sqlite/filesystem_linux.go":    readsMounts,
	"internal/sqlite/path.go":                createsNew,
	"internal/sqlite/writeback.go":           readsLog,
}

// readsMounts recognizes os.ReadFile of the kernel's mount table, which is not a database.
func readsMounts(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "ReadFile" || len(call.Args) != 1 {
		return false
	}
	name, ok := call.Args[0].(*ast.Ident)
	return ok && name.Name == "mountinfo"
}

// readsProc recognizes os.ReadFile of process information in /proc.
func readsProc(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "ReadFile" || len(call.Args) != 1 {
		return false
	}
	path := call.Args[0]
	for {
		sum, ok := path.(*ast.BinaryExpr)
		if !ok {
			break
		}
		path = sum.X
	}
	name, ok := path.(*ast.Ident)
	return ok && name.Name == "proc"
}

// readsLog recognizes os.Open of the write-ahead log. SQLite holds no locks on that file.
func readsLog(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Open" || len(call.Args) != 1 {
		return false
	}
	path, ok := call.Args[0].(*ast.SelectorExpr)
	return ok && path.Sel.Name == "log"
}

// opensSignal recognizes the opening or creation of a signal file, which is not a database.
func opensSignal(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Open" || len(call.Args) != 3 {
		return createsNew(call)
	}
	path, ok := call.Args[0].(*ast.CallExpr)
	if !ok {
		return false
	}
	of, ok := path.Fun.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "path"
}

// createsNew recognizes os.OpenFile with O_EXCL. The process cannot hold locks on a file that did
// not exist before.
func createsNew(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "OpenFile" || len(call.Args) != 3 {
		return false
	}
	flags := map[string]bool{}
	ast.Inspect(call.Args[1], func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			flags[id.Name] = true
		}
		return true
	})
	return flags["O_EXCL"] && flags["O_CREATE"]
}

// uses reports each use of the given names, by import path. It also reports dot imports of these
// packages, because they would hide the uses.
func (s source) uses(names map[string][]string, allowed map[*ast.SelectorExpr]bool) (faults []string) {
	imports := s.imports()
	if p := imports["."]; names[p] != nil {
		faults = append(faults, "imports "+p+" with a dot")
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || allowed[sel] {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(names[imports[x.Name]], sel.Sel.Name) {
			faults = append(faults, "uses "+imports[x.Name]+"."+sel.Sel.Name)
		}
		return true
	})
	return faults
}

// Callers pass the time to the store, once per transaction, so that tests can use the fake clock of
// testing/synctest.
var (
	sqlClock = regexp.MustCompile(`(?i)\bunixepoch\b|\bstrftime\b|\bjulianday\b|\bcurrent_(timestamp|time|date)\b|'now'`)
	goClock  = map[string][]string{"time": {"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick", "AfterFunc"}}
)

func clockFaults(s source) []string {
	if s.test || s.room != "internal/sqlite/store" {
		return nil
	}
	faults := s.uses(goClock, nil)
	for _, text := range s.texts() {
		// Triggers also run in the statements of other bindings, which cannot pass a time. gate.go
		// contains parts of such triggers.
		if sqlClock.MatchString(text) && !strings.HasPrefix(text, "CREATE TRIGGER") && s.path != "internal/sqlite/store/jobs/gate.go" {
			faults = append(faults, "asks SQLite for the time: "+text)
		}
	}
	return faults
}

// exportFaults reports files of the root package that export nothing. Each file there holds a noun
// of the API; shared machinery belongs in a package below internal/.
func exportFaults(s source) []string {
	if s.test || s.room != "" || s.path == "doc.go" {
		return nil
	}
	for _, d := range s.file.Decls {
		if exports(d) {
			return nil
		}
	}
	return []string{"exports nothing: a package below internal/ is the place for machinery"}
}

func exports(d ast.Decl) bool {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv.List[0].Type))
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					return true
				}
			case *ast.ValueSpec:
				if slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
					return true
				}
			}
		}
	}
	return false
}

// exportedReceiver also handles *T, T[A] and T[A, B].
func exportedReceiver(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return exportedReceiver(e.X)
	case *ast.IndexExpr:
		return exportedReceiver(e.X)
	case *ast.IndexListExpr:
		return exportedReceiver(e.X)
	case *ast.Ident:
		return e.IsExported()
	}
	return false
}

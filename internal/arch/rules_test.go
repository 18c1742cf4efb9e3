package arch_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// rule returns what is wrong with a file.
type rule func(source) []string

var rules = map[string]rule{
	"imports": importFaults,
	"sql":     sqlFaults,
	"files":   fileFaults,
	"clock":   clockFaults,
}

const (
	module = "github.com/honker-go/honker"
	driver = "modernc.org/sqlite"
)

// What the rooms below the root may import of this module, besides themselves. A
// new room needs a line here.
var mayImport = map[string][]string{
	"internal/arch":    {},
	"internal/cron":    {},
	"internal/sqlfunc": {"internal/cron", "internal/sqlite", "internal/store"},
	"internal/sqlite":  {},
	"internal/store":   {"internal/sqlite"},
	"internal/testkit": {"", "honkertest"},
	"internal/watch":   {"internal/sqlite"},
}

// For tests only.
var testRooms = []string{"internal/arch", "internal/testkit"}

// The nested modules of the tests may have the helpers of the tests. tests/ also reaches
// below the root, to stop the library between two statements.
var nestedMayImport = map[string][]string{
	"tests": {"internal/sqlite", "internal/testkit"},
	"bench": {"internal/testkit"},
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

func (s source) mayEnter(to string) bool {
	if s.test && slices.Contains(testRooms, to) || s.nested && slices.Contains(nestedMayImport[s.room], to) {
		return true
	}
	below := strings.HasPrefix(to, "internal/")
	switch {
	case strings.HasPrefix(s.room, "internal/"):
		return slices.Contains(mayImport[s.room], to)
	case s.room == "":
		return below && !slices.Contains(testRooms, to) || s.test && to == "honkertest"
	default: // the rim: it has what every user has
		return to == "" || to == "honkertest"
	}
}

var (
	// Statements, as they are written here: key words in capitals.
	dataSQL = regexp.MustCompile(`(?s)\bSELECT\b.*\bFROM\b|\b(INSERT|REPLACE)\s+(OR\s+\w+\s+)?INTO\b|` +
		`\bUPDATE\b.*\bSET\b|\bDELETE\s+FROM\b|` +
		`\b(CREATE|DROP|ALTER)\s+(TEMP\s+|TEMPORARY\s+|UNIQUE\s+|VIRTUAL\s+)?(TABLE|INDEX|TRIGGER|VIEW)\b`)
	// … or in any way, where they name one of our tables.
	anySQL = regexp.MustCompile(`(?is)^\s*(select|insert|replace|update|delete|with|create|drop|alter)\b.*_honker`)
	// What says how to reach SQLite, not what is in the file.
	controlSQL = regexp.MustCompile(`^\s*(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA|VACUUM|ATTACH|DETACH|ANALYZE)\b|` +
		`(?i)\bpragma\s+\w|\bsqlite_version\s*\(|\btotal_changes\s*\(`)
)

// Applications have tables of their own, and tests look at the file as other programs do.
var applications = []string{"examples", "bench", "tests", "internal/testkit"}

func sqlFaults(s source) (faults []string) {
	if s.test || s.room == "internal/store" || slices.Contains(applications, s.room) {
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

// Closing any descriptor of a database drops the POSIX locks that the process holds
// on it, and acknowledged commits can vanish.
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
	"internal/sqlite/path.go":      createsNew,
	"internal/sqlite/writeback.go": readsLog,
}

// readsLog recognises os.Open of the log, on which there are no locks.
func readsLog(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Open" || len(call.Args) != 1 {
		return false
	}
	path, ok := call.Args[0].(*ast.SelectorExpr)
	return ok && path.Sel.Name == "log"
}

// createsNew recognises os.OpenFile with O_EXCL: the file did not exist, so there
// is no lock on it.
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

// uses reports each mention of one of names, by import path. A dot import hides
// them, so it is reported itself.
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

// The store is told the time: once per transaction, and synctest's where a test
// runs weeks in milliseconds.
var (
	sqlClock = regexp.MustCompile(`(?i)\bunixepoch\b|\bstrftime\b|\bjulianday\b|\bcurrent_(timestamp|time|date)\b|'now'`)
	goClock  = map[string][]string{"time": {"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker", "Tick", "AfterFunc"}}
)

func clockFaults(s source) []string {
	if s.test || s.room != "internal/store" {
		return nil
	}
	faults := s.uses(goClock, nil)
	for _, text := range s.texts() {
		if sqlClock.MatchString(text) {
			faults = append(faults, "asks SQLite for the time: "+text)
		}
	}
	return faults
}

package store_test

import (
	"database/sql"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/dispatches"
	"github.com/honker-go/honker/internal/sqlite/store/flows"
	"github.com/honker-go/honker/internal/sqlite/store/inboxes"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/lists"
	"github.com/honker-go/honker/internal/sqlite/store/locks"
	"github.com/honker-go/honker/internal/sqlite/store/moves"
	"github.com/honker-go/honker/internal/sqlite/store/notify"
	"github.com/honker-go/honker/internal/sqlite/store/ops"
	"github.com/honker-go/honker/internal/sqlite/store/relays"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
	"github.com/honker-go/honker/internal/sqlite/store/schedules"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
	"github.com/honker-go/honker/internal/sqlite/store/streams"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite testdata/plans.golden")

const golden = "testdata/plans.golden"

// The query plans match the reviewed golden file. If a plan changes, whether because of an edit or a new version of
// SQLite, a person must review it.
func TestPlans_Golden(t *testing.T) {
	got := plans(t, withEverything(t, openFresh(t)))
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	want := plansByName(strings.SplitAfter(string(text), "\n\n"))
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(inOrder(got, want)), 0o644))
		return
	}
	const hint = "if the new plan is as good: go test ./internal/sqlite/store -run Plans -update"
	for _, plan := range got {
		name, _, _ := strings.Cut(plan, "\n")
		require.Equal(t, strings.TrimSpace(want[name].plan), strings.TrimSpace(plan), hint)
	}
	require.Len(t, got, len(want), hint)
}

// goldenPlan is a plan and its position in the golden file.
type goldenPlan struct {
	place int
	plan  string
}

// plansByName returns plans by their first lines.
func plansByName(plans []string) map[string]goldenPlan {
	all := make(map[string]goldenPlan, len(plans))
	for i, plan := range plans {
		name, _, _ := strings.Cut(plan, "\n")
		all[name] = goldenPlan{i, plan}
	}
	return all
}

// inOrder joins plans in the golden file's order. New plans come last, so that a diff of the file
// shows only plans that changed.
func inOrder(plans []string, of map[string]goldenPlan) string {
	place := func(plan string) int {
		name, _, _ := strings.Cut(plan, "\n")
		if g, found := of[name]; found {
			return g.place
		}
		return len(of)
	}
	sorted := slices.Clone(plans)
	slices.SortStableFunc(sorted, func(a, b string) int { return place(a) - place(b) })
	return strings.Join(sorted, "\n")
}

// allStatements returns the statements of all store packages.
func allStatements() []rows.Statement {
	return slices.Concat(rows.Statements(), jobs.Statements(), lists.Statements(), streams.Statements(), schedules.Statements(),
		locks.Statements(), notify.Statements(), relays.Statements(), dispatches.Statements(),
		inboxes.Statements(), flows.Statements(), moves.Statements(), ops.Statements(), schema.Statements())
}

// withEverything adds all tables that the library creates on demand.
func withEverything(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	return withCompacted(t, withMoving(t, withFlows(t, withInbox(t, withDispatch(t, withRelay(t, db))))))
}

// The plans don't change if the indexes that a honker binding adds are present.
func TestPlans_HonkerIndexes(t *testing.T) {
	fresh, shared := plans(t, withEverything(t, openFresh(t))), plans(t, withEverything(t, openShared(t)))
	for i := range fresh {
		require.Equal(t, fresh[i], shared[i])
	}
}

// plans returns the plans of all statements, each under its statement's name.
func plans(t *testing.T, db *sql.DB) []string {
	t.Helper()
	var out []string
	for _, s := range allStatements() {
		out = append(out, s.Name+"\n"+plan(t, db, s.SQL))
	}
	return out
}

var parameter = regexp.MustCompile(`\?(\d*)`)

// plan returns the query plan of query as a tree, indented by two spaces per level.
func plan(t *testing.T, q row.Querier, query string) string {
	t.Helper()
	n := 0
	for _, m := range parameter.FindAllStringSubmatch(query, -1) {
		i, err := strconv.Atoi(m[1])
		if err != nil {
			i = n + 1 // a bare parameter gets the next number
		}
		n = max(n, i)
	}
	r, err := q.QueryContext(ctx, `EXPLAIN QUERY PLAN `+query, make([]any, n)...)
	require.NoError(t, err, query)
	defer r.Close()
	var b strings.Builder
	depth := map[int]int{0: 0}
	for r.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, r.Scan(&id, &parent, &unused, &detail))
		depth[id] = depth[parent] + 1
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth[id]), detail)
	}
	require.NoError(t, r.Err())
	return b.String()
}

// Statements that run for each job never scan the whole backlog.
func TestPlans_NoFullScan(t *testing.T) {
	for _, db := range []*sql.DB{withEverything(t, openFresh(t)), withEverything(t, openShared(t))} {
		for _, s := range allStatements() {
			if !s.Cold {
				require.Empty(t, planFault(plan(t, db, s.SQL)), s.Name)
			}
		}
	}
}

// live matches _honker_live and its alias in the claim.
var live = regexp.MustCompile(`\b(_honker_live|l)\b`)
var liveScan = regexp.MustCompile(`\bSCAN (_honker_live|l)\b`)

// planFault explains why the cost of p grows with every job in the table, or returns "" if it doesn't.
func planFault(p string) string {
	switch {
	case liveScan.MatchString(p):
		return "reads the whole of _honker_live"
	case strings.Contains(p, "MULTI-INDEX OR"):
		return "reads by several indexes"
	case strings.Contains(p, "TEMP B-TREE") && live.MatchString(p):
		return "sorts"
	}
	return ""
}

// A new limit doesn't make SQLite plan a statement again.
func TestPlans_Limit_NoReplan(t *testing.T) {
	for _, s := range allStatements() {
		require.NotRegexp(t, `LIMIT \?\d*($|[^ \d]| [^+])`, s.SQL, s.Name)
	}
}

// planFault finds slow plans.
func TestPlans_SlowFound(t *testing.T) {
	tx := begin(t, openShared(t))
	for query, fault := range map[string]string{
		`SELECT id FROM _honker_live WHERE priority = 1`:                                          "reads the whole of _honker_live",
		`SELECT l.id FROM _honker_live AS l WHERE l.priority = 1`:                                 "reads the whole of _honker_live",
		`SELECT id FROM _honker_live WHERE queue = ?1 AND state = 'pending' ORDER BY created_at`:  "sorts",
		`SELECT id FROM _honker_live WHERE id = ?1`:                                               "",
		`SELECT id, created_at FROM _honker_notifications WHERE channel = ?1 ORDER BY created_at`: "",
		`SELECT payload` + honkerExhausted:                                                        "reads by several indexes",
	} {
		require.Equal(t, fault, planFault(plan(t, tx, query)), query)
	}
}

// The lists of statements contain every statement in the store packages.
func TestPlans_AllExplained(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	nouns, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	files = append(files, nouns...)
	require.NotEmpty(t, files)
	explained := explainedNames()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, unexplained(t, string(source), explained), "add to the statements of its noun: %s", file)
	}
}

// unexplained finds statements that are missing from the lists.
func TestPlans_UnexplainedFound(t *testing.T) {
	source := "package store\nconst sqlNew = `x`\nvar (\n\tsqlOther, sqlAck = 1, 2\n)\nfunc f() { const sqlInner = 3 }\n"
	require.Equal(t, []string{"sqlNew", "sqlOther", "sqlInner"}, unexplained(t, source, explainedNames()))
}

func explainedNames() map[string]bool {
	names := make(map[string]bool)
	for _, s := range allStatements() {
		name, _, _ := strings.Cut(s.Name, "[")
		names[name] = true
	}
	return names
}

// unexplained returns the names sql… that are declared in source but missing from explained.
func unexplained(t *testing.T, source string, explained map[string]bool) (missing []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, name := range spec.Names {
				if strings.HasPrefix(name.Name, "sql") && !explained[name.Name] {
					missing = append(missing, name.Name)
				}
			}
		}
		return true
	})
	return missing
}

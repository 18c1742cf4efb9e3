package honkerprom_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerprom"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// everything returns a registry in which each metric has a value.
func everything(t *testing.T) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	o := honkerprom.Observer(reg, nil)
	o.Enqueued(observe.Enqueued{Queue: "mails", IDs: []int64{1}})
	o.Deduplicated(observe.Deduplicated{Queue: "mails", Existing: 1})
	o.Working(observe.Working{Queues: []string{"mails"}, Slots: 2})
	o.Started(observe.Started{Queue: "mails"})
	o.Returned(observe.Returned{Queue: "mails"})
	o.Settled(observe.Settled{Topic: "orders", Group: "packers"})
	o.Published(observe.Published{Topic: "orders", First: 1, Last: 1})
	o.Fired(honker.Fire{Name: "tea"})
	o.Woke(observe.Woke{Cause: "commit", Waiters: 1})
	o.Tx(observe.TxEnded{Committed: true})

	db := honkertest.Open(t, nil)
	testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
	orders := honker.NewStream[int](db, "orders", nil)
	testkit.Publish(t, orders, 1)
	_, err := orders.SaveOffset(t.Context(), "audit", 0)
	require.NoError(t, err)
	_, err = orders.Group("packers", nil).Join(t.Context(), "ada")
	require.NoError(t, err)
	require.NoError(t, db.Scheduler().Register(t.Context(), honker.Schedule{Name: "tea", Queue: "tea", Spec: "@every 1h"}))
	testkit.Claim(t, honker.NewQueue[int](db, "mails", nil), 1)
	reg.MustRegister(honkerprom.New(db, nil))
	return reg
}

// names returns a line for each metric with its name, type and labels.
func names(t *testing.T) (lines []string) {
	t.Helper()
	families, err := everything(t).Gather()
	require.NoError(t, err)
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","))))
	}
	return lines
}

// Names, types and labels are part of the API, because dashboards rely on them.
func TestMetrics_Names(t *testing.T) {
	const golden = "testdata/metrics.golden"
	got := strings.Join(names(t), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
	for line := range strings.Lines(got) {
		name, rest, _ := strings.Cut(line, " ")
		require.Equal(t, strings.HasPrefix(rest, "counter"), strings.HasSuffix(name, "_total"), "a counter, and it alone, is a total: %s", name)
	}
}

// promtool runs Prometheus's promtool, or skips the test if it isn't installed.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %q\n%s", args, out)
}

// promtool accepts the names and help texts of the metrics.
func TestMetrics_Lint(t *testing.T) {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(everything(t), promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	promtool(t, answer.Body.Bytes(), "check", "metrics")
}

// The alerts fire when they should, and not before.
func TestAlerts_Rules(t *testing.T) {
	promtool(t, nil, "check", "rules", "alerts.yaml")
	promtool(t, nil, "test", "rules", "testdata/alerts_test.yaml")
}

var metricName = regexp.MustCompile(`\bhonker_\w+`)

// The alerts and the dashboard use only metrics that exist.
func TestFiles_NameMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, line := range names(t) {
		name, rest, _ := strings.Cut(line, " ")
		known[name] = true
		if strings.HasPrefix(rest, "histogram") {
			known[name+"_bucket"] = true
		}
	}
	for _, file := range []string{"alerts.yaml", "dashboards/honker.json"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		named := metricName.FindAllString(string(text), -1)
		require.Greater(t, len(named), 5, file)
		for _, name := range named {
			require.True(t, known[name], "%s asks for %s", file, name)
		}
	}
}

// The dashboard's panels have unique IDs and fit on the page, and promtool accepts their queries.
func TestDashboard_Queries(t *testing.T) {
	text, err := os.ReadFile("dashboards/honker.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			ID      int
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	rules, n := "groups: [{name: panels, rules: [", 0
	var ids []int
	for _, p := range board.Panels {
		require.NotContains(t, ids, p.ID)
		ids = append(ids, p.ID)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		for _, target := range p.Targets {
			n++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$queue", ".*").Replace(target.Expr)
			quoted, err := json.Marshal(expr)
			require.NoError(t, err)
			rules += fmt.Sprintf("{record: 'panel:%d', expr: %s},", n, quoted)
		}
	}
	require.Greater(t, n, 15)
	require.True(t, slices.IsSorted(ids))
	file := filepath.Join(t.TempDir(), "panels.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules+"]}]"), 0o644))
	promtool(t, nil, "check", "rules", file)
}

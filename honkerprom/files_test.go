package honkerprom_test

import (
	"bytes"
	"context"
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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/honkerprom"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
	"github.com/honker-go/honker/relay"
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
	_, end := o.BeginStep(t.Context(), observe.Step{Flow: "order", Name: "charge"})
	end(observe.StepEnd{})

	db := honkertest.Open(t, nil)
	testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1)
	orders := honker.NewStream[int](db, "orders", nil)
	testkit.Publish(t, orders, 1)
	_, err := orders.SaveOffset(t.Context(), "audit", 0)
	require.NoError(t, err)
	_, err = orders.Group("packers", nil).Join(t.Context(), "ada")
	require.NoError(t, err)
	require.NoError(t, db.Scheduler().Register(t.Context(), honker.Schedule{Name: "tea", Queue: "tea", Spec: "@every 1h"}))
	testkit.Tick(t, db, time.Now().Add(2*time.Hour))
	testkit.Claim(t, honker.NewQueue[int](db, "mails", nil), 1)
	hooks := relay.New(db, nil).Queue("hooks", 2)
	_, err = hooks.Send(t.Context(), relay.Outgoing{Payload: []byte("1")})
	require.NoError(t, err)
	_, err = dispatch.New(db, nil).Send(t.Context(), dispatch.Target{Type: "osis"}, 1)
	require.NoError(t, err)
	order := flow.New(db, "order", func(ctx context.Context, in int) (int, error) { return in, nil }, nil)
	_, err = order.Start(t.Context(), "17", 1)
	require.NoError(t, err)
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
	testkit.FileOnly(t)
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

// Each problem is an alert, with the severity that it has in honker doctor.
func TestAlerts_AllProblems(t *testing.T) {
	rules, err := filepath.Abs("alerts.yaml")
	require.NoError(t, err)
	series, alerts := "", ""
	for _, code := range admin.ProblemCodes() {
		series += fmt.Sprintf(`{series: 'honker_problems{code="%s", severity="%s"}', values: 1x10},`, code, code.Severity())
		severity := map[admin.Severity]string{admin.SeverityError: "critical", admin.SeverityWarn: "warning"}[code.Severity()]
		alerts += fmt.Sprintf(`{value: 1, labels: 'ALERTS{alertname="HonkerProblem", alertstate="firing", code="%s", severity="%s"}'},`, code, severity)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{rule_files: [%q], evaluation_interval: 1m, tests: [{interval: 1m, input_series: [%s],
		promql_expr_test: [{expr: 'ALERTS{alertstate="firing"}', eval_time: 6m, exp_samples: [%s]}]}]}`, rules, series, alerts), 0o644))
	promtool(t, nil, "test", "rules", file)
}

var metricName = regexp.MustCompile(`\bhonker_\w+`)

// The alerts and the dashboard use only metrics that exist.
func TestFiles_NameMetrics(t *testing.T) {
	testkit.FileOnly(t)
	known := map[string]bool{}
	for _, line := range names(t) {
		name, rest, _ := strings.Cut(line, " ")
		known[name] = true
		if strings.HasPrefix(rest, "histogram") {
			known[name+"_bucket"] = true
			known[name+"_count"] = true
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
		Links []struct{ URL string }
	}
	require.NoError(t, json.Unmarshal(text, &board))
	rules, n := "groups: [{name: panels, rules: [", 0
	var ids []int
	types, taken := map[string]bool{}, map[[2]int]int{}
	for _, p := range board.Panels {
		types[p.Type] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Zero(t, taken[[2]int{x, y}], "panel %d overlaps", p.ID)
				taken[[2]int{x, y}] = p.ID
			}
		}
		require.NotContains(t, ids, p.ID)
		ids = append(ids, p.ID)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		for _, target := range p.Targets {
			n++
			require.Regexp(t, metricName, target.Expr)
			expr := strings.NewReplacer("$__rate_interval", "5m", "$queue", ".*").Replace(target.Expr)
			quoted, err := json.Marshal(expr)
			require.NoError(t, err)
			rules += fmt.Sprintf("{record: 'panel:%d', expr: %s},", n, quoted)
		}
	}
	require.Greater(t, n, 15)
	for _, metric := range []string{"honker_queue_oldest_running_seconds", "honker_schedule_last_fire_timestamp_seconds", "honker_queues_folded",
		"honker_flow_runs", "honker_flow_oldest_suspended_seconds", "honker_flow_step_seconds", "honker_flow_steps_failed_total",
		"honker_relay_dead_messages", "honker_actor_jobs"} {
		require.Contains(t, rules, metric)
	}
	require.True(t, types["heatmap"])
	require.NotEmpty(t, board.Links)
	require.True(t, slices.IsSorted(ids))
	file := filepath.Join(t.TempDir(), "panels.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules+"]}]"), 0o644))
	promtool(t, nil, "check", "rules", file)
}

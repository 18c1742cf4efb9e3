package uitest_test

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axe is the unmodified source of axe-core by Deque, licensed under MPL-2.0, see testdata/axe.
//
//go:embed testdata/axe/axe.min.js
var axe string

// violation is a rule that axe-core found to be violated, with the offending elements.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

func (v violation) String() string {
	s := fmt.Sprintf("%s (%s): %s", v.ID, v.Impact, v.Help)
	for _, node := range v.Nodes {
		s += "\n  " + node.HTML + "\n    " + strings.ReplaceAll(node.FailureSummary, "\n", "\n    ")
	}
	return s
}

// violations returns the page's serious and critical violations. The axe script is injected through the DevTools
// protocol, which is not subject to the page's content security policy. It sends no requests.
func (b *browser) violations() string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]violation](axe+`;
		axe.run(document, {resultTypes: ["violations"], preload: false}).then((r) =>
			r.violations.filter((v) => v.impact === "serious" || v.impact === "critical")
				.map(({id, impact, help, nodes}) => ({id, impact, help, nodes: nodes.map(({html, failureSummary}) => ({html, failureSummary}))})))`,
		chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	var all strings.Builder
	for _, v := range found {
		fmt.Fprintln(&all, v)
	}
	return all.String()
}

// Empty pages, error pages and the help dialog are accessible, too. A page with unreadable text does have violations.
func TestPages_Accessible(t *testing.T) {
	b := browse(t, serve(t, nil, 0, nil))
	b.expected = []string{"404"} // the browser logs the response
	for _, page := range []string{"", "jobs", "dead", "audit", "job?id=7", "nowhere"} {
		b.open(b.home + "/honker/" + page)
		require.Empty(t, b.violations(), page)
	}
	b.run(chromedp.Click(chromedp.CSS("#help")), chromedp.WaitVisible(chromedp.CSS("#keys")))
	require.Empty(t, b.violations(), "the help")
	b.run(chromedp.Evaluate[chromedp.Void]("document.getElementById('keys').close(); document.querySelector('h1').style.color = '#eee'"))
	require.Contains(t, b.violations(), "color-contrast (serious)")
}

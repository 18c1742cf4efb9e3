package ui

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// workflow is the drawing of the jobs and batches near a job.
type workflow struct {
	Image template.HTML
	More  bool // whether nodes are missing
}

// Sizes of a workflow's drawing in pixels.
const (
	workflowLevels = 2
	boxWidth       = 128
	boxHeight      = 40
	boxGap         = 12
	levelGap       = 28
	boxPadding     = 12
	nameLength     = 40 // bytes of a queue's name in a box, which clips it
)

// workflow returns the drawing of a job's dependencies, or nil if it has none.
func (c *call) workflow(id int64) (*workflow, error) {
	g, err := admin.Dependencies(c.ctx, c.db, id, workflowLevels)
	if err != nil || len(g.Nodes) < 2 {
		return nil, err
	}
	return &workflow{c.drawGraph(g), g.More}, nil
}

// box is the place of a node.
type box struct{ x, y int }

// placesOf arranges the levels in columns, which are centered vertically.
func placesOf(g *admin.DependencyGraph) (places []box, width, height int) {
	rows := map[int]int{}
	for _, n := range g.Nodes {
		rows[n.Level]++
	}
	first, last := g.Nodes[0].Level, g.Nodes[len(g.Nodes)-1].Level
	most := 0
	for _, n := range rows {
		most = max(most, n)
	}
	height = most*(boxHeight+boxGap) + boxGap
	at := map[int]int{}
	for _, n := range g.Nodes {
		column := rows[n.Level]*(boxHeight+boxGap) - boxGap
		places = append(places, box{1 + (n.Level-first)*(boxWidth+levelGap), (height-column)/2 + at[n.Level]*(boxHeight+boxGap)})
		at[n.Level]++
	}
	return places, (last-first+1)*(boxWidth+levelGap) - levelGap + 2, height
}

func (c *call) drawGraph(g *admin.DependencyGraph) template.HTML {
	places, width, height := placesOf(g)
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="workflow" viewBox="0 0 %d %d" width="%d" height="%d" role="group" aria-label="Jobs and batches that wait for each other">`, width, height, width, height)
	for _, e := range g.Edges {
		from, to := places[e.From], places[e.To]
		class := "edge"
		if e.Dead {
			class = "edge dead"
		}
		x1, y1, x2, y2 := from.x+boxWidth, from.y+boxHeight/2, to.x, to.y+boxHeight/2
		if from.x >= to.x { // an edge within a level
			x1, x2 = from.x+boxWidth, to.x+boxWidth
		}
		bend := levelGap / 2
		fmt.Fprintf(&s, `<path class="%s" d="M%d %dC%d %d %d %d %d %d"/>`, class, x1, y1, x1+bend, y1, bendTo(x1, x2, bend), y2, x2, y2)
	}
	for i, n := range g.Nodes {
		c.drawNode(&s, &n, places[i])
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String())
}

// bendTo returns the second control point of an edge, which comes from the left unless both ends are at the right.
func bendTo(x1, x2, bend int) int {
	if x2 > x1 {
		return x2 - bend
	}
	return x2 + bend
}

// drawNode writes a box with a name, an ID and a state. The names of queues that the operator may not see are omitted.
func (c *call) drawNode(s *strings.Builder, n *admin.DependencyNode, at box) {
	name, class, state := c.describeNode(n)
	url := c.link("job", values("id", n.ID))
	switch {
	case n.Batch != nil:
		url = c.link("jobs", values("batch", n.ID))
	case n.Level == 0 || n.Job == nil:
		url = ""
	}
	if n.Level == 0 {
		class += " self"
	}
	fmt.Fprintf(s, `<svg class="node %s" x="%d" y="%d" width="%d" height="%d">`, class, at.x, at.y, boxWidth, boxHeight)
	if url != "" {
		fmt.Fprintf(s, `<a href="%s">`, template.HTMLEscapeString(url))
	}
	fmt.Fprintf(s, `<title>%s</title><rect class="frame" x=".5" y=".5" width="%d" height="%d" rx="8"/><rect class="side" width="4" height="%d" rx="2"/>`,
		template.HTMLEscapeString(name+" "+strconv.FormatInt(n.ID, 10)+": "+state), boxWidth-1, boxHeight-1, boxHeight)
	fmt.Fprintf(s, `<text x="%d" y="17"><tspan class="name">%s</tspan> <tspan class="id">%d</tspan></text><text class="state" x="%d" y="32">%s</text>`,
		boxPadding, template.HTMLEscapeString(name), n.ID, boxPadding, template.HTMLEscapeString(state))
	if url != "" {
		s.WriteString(`</a>`)
	}
	s.WriteString(`</svg>`)
}

// describeNode returns a node's name, its class and its state in words.
func (c *call) describeNode(n *admin.DependencyNode) (name, class, state string) {
	switch {
	case n.Batch != nil:
		return describeBatch(n.Batch)
	case n.Job == nil:
		return "job", "done", "done, not kept"
	}
	if name = "job"; c.can("look", n.Job.Queue) {
		name = cut(nameLength, strings.Join(strings.Fields(n.Job.Queue), " "))
	}
	state = string(n.Job.Phase)
	switch j := n.Job; {
	case j.Phase == honker.PhaseRunning && !j.StartedAt.IsZero():
		state = "runs for " + spanOf(c.now.Sub(j.StartedAt))
	case j.Phase == honker.PhaseHeld:
		state = "waits"
	case j.Phase == honker.PhaseScheduled:
		state = "due " + admin.FormatAgo(c.now.Sub(j.RunAt))
	}
	return name, string(n.Job.Phase), state
}

func describeBatch(b *admin.BatchInfo) (name, class, state string) {
	name, class = "batch", "held"
	if b.Name != "" {
		name = cut(nameLength, strings.Join(strings.Fields(b.Name), " "))
	}
	state = num(b.Done) + " of " + num(b.Total) + " done"
	switch {
	case b.Dead > 0:
		class, state = "dead", state+", "+num(b.Dead)+" dead"
	case !b.DoneAt.IsZero():
		class = "done"
	case b.Open:
		state += ", open"
	}
	return name, class, state
}

package ui

import (
	"fmt"
	"html/template"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// readerRow is a consumer or a group with its progress.
type readerRow struct {
	Topic, Name string
	Group       *groupRow // nil for a consumer
	Offset      int64     // last event handled, or delivered to a member
	Lag         honker.Count
	LagMax      int64
	Behind      time.Time
	Published   float64
	Read        string // events a second; "" if unknown
	CatchUp     string // "in step", "in 36m", "never", or "" if unknown
	Dot         string // class: "good", "warn" or "bad"
	Saved       time.Time
	Bar         template.HTML
	rank        int
}

// worse reports whether r is in more trouble than other.
func (r *readerRow) worse(other *readerRow) bool {
	return r.rank > other.rank || r.rank == other.rank && r.LagMax > other.LagMax
}

// inStep is the lag in time up to which a reader counts as up to date.
const inStep = time.Minute

// readers returns the consumers and groups of all topics and patterns.
func (c *call) readers(topics []admin.TopicInfo) (all []*readerRow, err error) {
	consumers, err := admin.Consumers(c.ctx, c.db)
	if err != nil {
		return nil, err
	}
	groups, err := admin.Groups(c.ctx, c.db)
	if err != nil {
		return nil, err
	}
	byName := map[string]admin.TopicInfo{}
	for _, t := range topics {
		byName[t.Name] = t
	}
	for _, r := range consumers {
		all = append(all, c.consumerRow(r, byName[r.Topic]))
	}
	for _, g := range groups {
		all = append(all, c.groupReader(g, byName[g.Topic]))
	}
	return all, nil
}

func (c *call) consumerRow(s admin.ConsumerState, t admin.TopicInfo) *readerRow {
	r := &readerRow{Topic: s.Topic, Name: s.Name, Offset: s.Offset, Lag: s.Lag, LagMax: s.LagMax, Behind: s.Behind, Published: s.Published, Saved: s.LastAck}
	if !s.ReadSince.IsZero() {
		r.Read = perSecond(s.Read)
	}
	silent := c.now.Sub(s.LastAck) > time.Hour && c.now.Sub(s.CreatedAt) > time.Hour
	switch {
	case r.upToDate(c.now):
		r.CatchUp = "in step"
	case silent && c.now.Sub(s.Behind) > time.Hour:
		r.CatchUp, r.rank = "no reader", rankError
	case s.FallsBehind:
		r.CatchUp, r.rank = "never", rankError
	case s.CatchUp > 0:
		r.CatchUp = "in " + admin.FormatAge(s.CatchUp)
	}
	if s.CatchUp > time.Hour || r.rank == rankHealthy && c.now.Sub(s.Behind) > time.Hour && !s.Behind.IsZero() {
		r.rank = rankWarn
	}
	r.finish(t, 0)
	return r
}

func (c *call) groupReader(s admin.GroupState, t admin.TopicInfo) *readerRow {
	g := &groupRow{GroupState: s}
	for _, m := range s.Members {
		silent := m.Until.Before(c.now)
		g.Living += boolean(!silent)
		if len(g.Shown) < membersPerGroup {
			g.Shown = append(g.Shown, memberRow{m, silent})
		}
	}
	r := &readerRow{Topic: s.Topic, Name: s.Name, Group: g, Offset: s.Cursor, Lag: s.Lag, LagMax: s.LagMax, Behind: s.Behind, Published: s.Published}
	switch {
	case s.Lag.N+s.Leased+s.Reclaim > 0 && g.Living == 0:
		r.CatchUp, r.rank = "no member lives", rankError
	case r.upToDate(c.now):
		r.CatchUp = "in step"
	case c.now.Sub(s.Behind) > time.Hour:
		r.rank = rankWarn
	}
	r.finish(t, s.Leased+s.Reclaim)
	return r
}

func (r *readerRow) upToDate(now time.Time) bool {
	return r.Lag.N == 0 && !r.Lag.More || !r.Behind.IsZero() && now.Sub(r.Behind) < inStep
}

// finish sets the fields that depend on the rank.
func (r *readerRow) finish(t admin.TopicInfo, held int64) {
	r.Dot = map[int]string{rankError: "bad", rankWarn: "warn"}[r.rank]
	if r.Dot == "" {
		r.Dot = "good"
	}
	r.Bar = positionBar(t, r.Offset, held, r.Dot)
}

// positionBar renders the position of a reader between the first kept event of a topic and its head. The last of the read
// events are shown as held. All topics share offsets, so the bar is an estimate.
func positionBar(t admin.TopicInfo, offset, held int64, class string) template.HTML {
	const width = 1000
	if t.First == 0 {
		return ""
	}
	all := t.Head - t.First + 1
	read := min(max(0, offset-t.First+1), all)
	filled := width * read / all
	part := min(scaled(min(held, all), all, width), filled)
	if held > 0 {
		part = min(max(part, width/100), max(filled, width/100))
	}
	label := fmt.Sprintf("%d %% of the kept events read", 100*read/all)
	return template.HTML(fmt.Sprintf(`<svg class="position" viewBox="0 0 %d 8" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title><rect class="bed" width="%d" height="8"/><rect class="%s" width="%d" height="8"/><rect class="held" x="%d" width="%d" height="8"/></svg>`,
		width, label, label, width, class, filled, max(0, filled-part), part))
}

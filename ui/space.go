package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// space tells how the bytes of a database are used.
type space struct {
	Tables []tableSpace // largest first
	Small  int64        // bytes of honker's other tables
	Other  int64        // bytes of tables that are not honker's
	Parts  []partSpace  // topics and jobs of queues, largest first
	Steps  []freeStep
}

type tableSpace struct {
	admin.TableBytes
	Bar template.HTML
}

// partSpace is the space of a topic, or of the jobs of a queue in a state.
type partSpace struct {
	admin.PartBytes
	Kind string
	URL  string
	Day  int64 // bytes that a topic adds in a day at its present rate; 0 if unknown
	Bar  template.HTML
}

// freeStep is a step that frees space.
type freeStep struct {
	Text, Link string
	Bytes      int64
	URL        string
	Do         *remedy // nil if a page has the step, or nobody may take it
}

const (
	partsShown  = 12
	largeShare  = 20               // a part is large if it takes at least the database's size divided by this,
	largeBytes  = 10 * 1000 * 1000 // and at least this many bytes
	secondsADay = 24 * 60 * 60
)

// space returns the use of a database of the given size in bytes.
func (c *call) space(size int64) (*space, error) {
	s := c.sizes()
	topics, err := admin.Topics(c.ctx, c.db)
	if err != nil {
		return nil, err
	}
	byName := map[string]admin.TopicInfo{}
	for _, t := range topics {
		byName[t.Name] = t
	}
	out := &space{Other: s.Other}
	most := int64(1)
	for _, t := range s.Tables {
		most = max(most, t.Bytes+t.Indexes)
	}
	for i, t := range s.Tables {
		if i < partsShown {
			out.Tables = append(out.Tables, tableSpace{t, bytesBar(t.Bytes, t.Indexes, most)})
		} else {
			out.Small += t.Bytes + t.Indexes
		}
	}
	for _, p := range slices.Concat(s.Topics, s.Queues) {
		out.Parts = append(out.Parts, c.partSpace(p, byName[p.Name]))
		if p.Bytes >= max(size/largeShare, largeBytes) {
			out.Steps = append(out.Steps, c.freeing(p, byName[p.Name])...)
		}
	}
	slices.SortStableFunc(out.Parts, func(a, b partSpace) int { return cmp.Compare(b.Bytes, a.Bytes) })
	out.Parts = out.Parts[:min(len(out.Parts), partsShown)]
	for i := range out.Parts {
		out.Parts[i].Bar = bytesBar(out.Parts[i].Bytes, 0, out.Parts[0].Bytes)
	}
	slices.SortStableFunc(out.Steps, func(a, b freeStep) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out, nil
}

func (c *call) partSpace(p admin.PartBytes, t admin.TopicInfo) partSpace {
	out := partSpace{PartBytes: p, Kind: "live jobs", URL: c.link("queue", values("name", p.Name))}
	switch p.State {
	case "":
		out.Kind, out.URL = "events", c.link("stream", values("topic", p.Name))
		if p.Rows > 0 {
			out.Day = int64(t.Published * secondsADay * float64(p.Bytes) / float64(p.Rows))
		}
	case honker.StateDead:
		out.Kind, out.URL = "dead letters", c.link("dead", values("queue", p.Name))
	case honker.StateDone:
		out.Kind, out.URL = "done jobs", c.link("jobs", values("queue", p.Name, "phase", honker.PhaseDone))
	}
	return out
}

// freeing returns the step that frees the space of a large part, if any.
func (c *call) freeing(p admin.PartBytes, t admin.TopicInfo) []freeStep {
	name := quoted(cut(80, p.Name))
	switch {
	case p.State == "" && t.Retention == honker.Retention{}:
		return []freeStep{{Text: "Topic " + name + " keeps all its events. Set a retention.", Link: "retention", Bytes: p.Bytes, URL: c.link("stream", values("topic", p.Name, "form", "retention"))}}
	case p.State == "":
		return []freeStep{{Text: "Topic " + name + " keeps the events that its slowest reader has not read, even beyond its retention.", Link: "its readers", Bytes: p.Bytes, URL: c.link("stream", values("topic", p.Name))}}
	case p.State == honker.StateDead:
		return []freeStep{{Text: "Queue " + name + " has many dead letters. Requeue or discard them, or set a retention.", Link: "by kind", Bytes: p.Bytes, URL: c.link("dead", values("queue", p.Name))}}
	case p.State == honker.StateDone:
		return []freeStep{{Text: "Queue " + name + " keeps done jobs. Lower its retention.", Link: "retention", Bytes: p.Bytes, URL: c.link("queue", values("name", p.Name, "form", "retention"))}}
	}
	return nil
}

// vacuumStep returns the step that returns free pages to the file system, if they are worth it.
func (c *call) vacuumStep(f *admin.FileInfo) []freeStep {
	free := f.FreePages * f.PageSize
	if free < max(f.Size/largeShare, largeBytes) {
		return nil
	}
	need := (f.Pages - f.FreePages) * f.PageSize
	text := fmt.Sprintf("Vacuum returns the free pages to the disk. Meanwhile it blocks writers and needs %s of disk", admin.FormatSize(need))
	if f.DiskFree >= 0 {
		text += fmt.Sprintf("; %s are free", admin.FormatSize(f.DiskFree))
		if f.DiskFree < need {
			text += ", which is too little"
		}
	}
	step := freeStep{Text: text + ".", Bytes: free}
	if c.can("vacuum", "") && !c.file.vacuum.result().Running {
		step.Do = &remedy{"vacuum", "Vacuum …", nil}
	}
	return []freeStep{step}
}

// bytesBar renders the bytes of a table and of its indexes next to the largest.
func bytesBar(rows, indexes, most int64) template.HTML {
	const width = 120
	a := scaled(rows, max(most, 1), width)
	b := scaled(indexes, max(most, 1), width)
	return template.HTML(fmt.Sprintf(`<svg class="meter long" viewBox="0 0 %d 6" preserveAspectRatio="none" aria-hidden="true"><rect class="bed" width="%d" height="6"/><rect class="fill now" width="%d" height="6"/><rect class="fill index" x="%d" width="%d" height="6"/></svg>`,
		width, width, a, a, b))
}

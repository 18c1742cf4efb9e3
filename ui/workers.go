package ui

import (
	"fmt"
	"html/template"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// workersPerPage is the maximum number of workers on the page.
const workersPerPage = 200

type workersPageData struct {
	Workers []workerRow
	Total   int
}

// workerRow is a worker with a meter that shows its load.
type workerRow struct {
	admin.WorkerInfo
	Meter template.HTML
}

func workersPage(c *call) serve {
	return func() error {
		all, err := admin.Workers(c.ctx, c.db)
		if err != nil {
			return err
		}
		d := &workersPageData{Total: len(all)}
		for _, w := range all[:min(len(all), workersPerPage)] {
			d.Workers = append(d.Workers, workerRow{w, meter(w.Running, w.Slots)})
		}
		return c.show(view{name: "workers", nav: "workers", title: "Workers", data: d})
	}
}

// Progress renders a bar for the progress reported by a handler.
func (p *page) Progress(g *honker.Progress) template.HTML {
	if g == nil {
		return ""
	}
	return meter(g.Done, g.Total)
}

// meter renders a bar that is filled to n/of. A worker can hold more jobs than it runs, so n may exceed of.
func meter[N int | int64](n, of N) template.HTML {
	if of <= 0 {
		return ""
	}
	const width = 80
	filled := int(width * min(1, max(0, float64(n)/float64(of))))
	return template.HTML(fmt.Sprintf(`<svg class="meter" viewBox="0 0 %d 6" width="%d" height="6" role="img" aria-label="%d of %d"><title>%d of %d</title>`+
		`<rect class="bed" width="%d" height="6" rx="3"/><rect class="fill" width="%d" height="6" rx="3"/></svg>`, width, width, n, of, n, of, width, filled))
}

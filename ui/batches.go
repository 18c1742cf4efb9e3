package ui

import (
	"fmt"
	"html/template"
	"net/url"

	"github.com/honker-go/honker/admin"
)

type batchesPageData struct {
	Batches []batchRow
	Next    url.Values
	First   bool
}

type batchRow struct {
	admin.BatchInfo
	Bar  template.HTML
	More int // number of waiting jobs that are not shown
}

func batchesPage(c *call) serve {
	after := c.params.text("after", 4096)
	return func() error {
		page, err := admin.Batches(c.ctx, c.db, &admin.PageOptions{After: admin.Cursor(after), Limit: 50})
		if err != nil {
			return err
		}
		d := &batchesPageData{First: after == ""}
		if page.Next != "" {
			d.Next = url.Values{"after": {string(page.Next)}}
		}
		for _, b := range page.Batches {
			row := batchRow{BatchInfo: b, Bar: batchBar(b), More: max(0, len(b.Next)-5)}
			row.Next = b.Next[:min(len(b.Next), 5)]
			d.Batches = append(d.Batches, row)
		}
		return c.show(view{name: "batches", nav: "batches", title: "Batches", data: d})
	}
}

// batchBar renders a bar that shows the states of a batch's members.
func batchBar(b admin.BatchInfo) template.HTML {
	const width = 160
	total := max(b.Total, 1)
	done, running, dead := width*b.Done/total, width*b.Running/total, width*b.Dead/total
	label := fmt.Sprintf("%s of %s done, %s running, %s waiting, %s dead", num(b.Done), num(b.Total), num(b.Running), num(b.Waiting), num(b.Dead))
	return template.HTML(fmt.Sprintf(`<svg class="meter long" viewBox="0 0 %d 6" width="%d" height="6" role="img" aria-label="%s"><title>%s</title><rect class="bed" width="%d" height="6"/>`+
		`<rect class="fill" width="%d" height="6"/><rect class="fill now" x="%d" width="%d" height="6"/><rect class="fill bad" x="%d" width="%d" height="6"/></svg>`,
		width, width, label, label, width, done, done, running, width-dead, dead))
}

func cancelBatchAction(c *call) serve {
	id, back := c.params.id("id"), c.back()
	return c.asks(fmt.Sprintf("Cancel batch %d", id), "Its waiting and running members are removed, and so are all jobs that wait for the batch or its members, directly or indirectly. Dead members stay dead.", "Cancel the batch", back,
		func() (bool, error) {
			n, err := c.db.Batch(id).Cancel(c.ctx)
			return n > 0, err
		})
}

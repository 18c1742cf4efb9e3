package ui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

func streamOf(db *honker.DB, topic string) *honker.Stream[rawJSON] {
	return honker.NewStream[rawJSON](db, topic, nil)
}

// streamsPageData holds the topics, and the patterns that have readers.
type streamsPageData struct {
	Topics  []topicRow
	Trouble int // number of topics with a reader that falls behind
	Bytes   int64
}

// topicRow is a topic, or a pattern if it has no events.
type topicRow struct {
	admin.TopicInfo
	Pattern bool
	Rate    string // events a second
	Bytes   int64  // 0 if unknown
	Readers int
	Worst   *readerRow // reader in the most trouble; nil if there is none
}

func (t *topicRow) rank() int {
	if t.Worst == nil {
		return -1
	}
	return t.Worst.rank
}

func streamsPage(c *call) serve {
	return func() error {
		topics, err := admin.Topics(c.ctx, c.db)
		if err != nil {
			return err
		}
		readers, err := c.readers(topics)
		if err != nil {
			return err
		}
		d := &streamsPageData{}
		sizes := c.sizes()
		rows := map[string]*topicRow{}
		for _, t := range topics {
			rows[t.Name] = &topicRow{TopicInfo: t, Rate: perSecond(t.Published), Bytes: sizes.topic(t.Name)}
			d.Bytes += rows[t.Name].Bytes
		}
		for _, r := range readers {
			t := rows[r.Topic]
			if t == nil {
				t = &topicRow{TopicInfo: admin.TopicInfo{Name: r.Topic}, Pattern: true, Rate: perSecond(r.Published)}
				rows[r.Topic] = t
			}
			if t.Readers++; t.Worst == nil || r.worse(t.Worst) {
				t.Worst = r
			}
		}
		for _, t := range rows {
			d.Topics = append(d.Topics, *t)
			d.Trouble += boolean(t.rank() >= rankWarn)
		}
		slices.SortFunc(d.Topics, func(a, b topicRow) int {
			by := cmp.Compare(b.rank(), a.rank())
			if a.Worst != nil && b.Worst != nil && a.rank() >= rankWarn {
				by = cmp.Or(by, cmp.Compare(b.Worst.LagMax, a.Worst.LagMax))
			}
			return cmp.Or(by, strings.Compare(a.Name, b.Name))
		})
		return c.show(view{name: "streams", nav: "streams", title: "Streams", data: d})
	}
}

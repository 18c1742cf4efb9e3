package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/admin"
)

// waitStrip shows the longest wait of a queue's jobs in each minute of the last hour.
type waitStrip struct {
	Queue   string
	Longest string
	Class   string
	Image   template.HTML
}

// stripsShown is the maximum number of strips, for the queues with the longest waits.
const stripsShown = 9

// waits lists the classes of a strip's minutes and their upper bounds.
var waits = []struct {
	below time.Duration
	class string
}{{time.Second, "w1"}, {10 * time.Second, "w2"}, {time.Minute, "w3"}, {5 * time.Minute, "w4"}, {1 << 62, "w5"}}

func waitClass(wait time.Duration) string {
	for _, w := range waits {
		if wait < w.below {
			return w.class
		}
	}
	return ""
}

func strips(s *survey) (all []waitStrip) {
	longest := map[string]time.Duration{}
	var names []string
	for name, minutes := range s.traffic {
		for _, b := range minutes {
			longest[name] = max(longest[name], b.longest)
		}
		if name != "" && name != admin.OtherQueues && flowOf(minutes).claimed > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(longest[b], longest[a]), strings.Compare(a, b))
	})
	for _, name := range names[:min(len(names), stripsShown)] {
		all = append(all, waitStrip{name, measured(longest[name]), waitClass(longest[name]), stripOf(s.traffic[name])})
	}
	return all
}

// stripOf renders the minutes as cells with a color for their longest wait. Minutes without claims remain empty.
func stripOf(minutes []bucket) template.HTML {
	cells := map[string]*strings.Builder{}
	for i, b := range minutes {
		if b.claimed == 0 {
			continue
		}
		class := waitClass(b.longest)
		if cells[class] == nil {
			cells[class] = &strings.Builder{}
		}
		fmt.Fprintf(cells[class], "M%d 0h2v1h-2z", 2*i)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg viewBox="0 0 %d 1" preserveAspectRatio="none" aria-hidden="true">`, 2*len(minutes))
	for _, w := range waits {
		if d := cells[w.class]; d != nil {
			fmt.Fprintf(&out, `<path class="%s" d="%s"/>`, w.class, d)
		}
	}
	out.WriteString(`</svg>`)
	return template.HTML(out.String())
}

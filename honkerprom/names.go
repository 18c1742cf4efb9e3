package honkerprom

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// other is the label for all names beyond Options.MaxQueues.
const other = "_other"

// names assigns labels to objects of a single kind. Assigned labels never change; otherwise series
// would start and stop depending on the order of names.
type names struct {
	fold func(string) string
	most int

	mu    sync.RWMutex
	known map[string]bool
}

func newNames(most int, fold func(string) string) *names {
	return &names{fold: fold, most: most, known: map[string]bool{}}
}

// label returns the label for name, or other if the limit has been reached.
func (n *names) label(name string) string { return n.assign(n.folded(name)) }

func (n *names) folded(name string) string {
	if n.fold == nil {
		return name
	}
	return n.fold(name)
}

// assign returns the label for a folded name.
func (n *names) assign(name string) string {
	if n.has(name) {
		return text(name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.known[name] && len(n.known) >= n.most {
		return other
	}
	n.known[name] = true
	return text(name)
}

func (n *names) has(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.known[name]
}

// labels returns the label for each name. If there are more new labels than may be assigned, the heaviest names get
// theirs. Only then does labels call weigh, which returns the weight of each name.
func (n *names) labels(all []string, weigh func() ([]int64, error)) ([]string, error) {
	folded := make([]string, len(all))
	weights := map[string]int64{} // of the folded names without a label
	for i, name := range all {
		if folded[i] = n.folded(name); !n.has(folded[i]) {
			weights[folded[i]] = 0
		}
	}
	if room := n.room(); room > 0 && len(weights) > room {
		each, err := weigh()
		if err != nil {
			return nil, err
		}
		for i, name := range folded {
			if _, unlabeled := weights[name]; unlabeled {
				weights[name] += each[i]
			}
		}
		for _, name := range heaviest(weights) {
			n.assign(name)
		}
	}
	for i, name := range folded {
		folded[i] = n.assign(name)
	}
	return folded, nil
}

// room returns the number of labels that can still be assigned.
func (n *names) room() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.most - len(n.known)
}

// heaviest returns the names in order of their weights, the heaviest first.
func heaviest(weights map[string]int64) []string {
	all := make([]string, 0, len(weights))
	for name := range weights {
		all = append(all, name)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b)) })
	return all
}

// pair returns the labels for a name and the space that it belongs to, such as a topic and its consumer.
func (n *names) pair(space, name string) (spaceLabel, label string) {
	const between = "\x00" // names cannot contain NUL
	joined := n.label(space + between + name)
	if joined == other {
		return other, other
	}
	spaceLabel, label, _ = strings.Cut(joined, between)
	return spaceLabel, label
}

// text returns name as valid UTF-8, as Prometheus requires. Other bindings may have written invalid
// names.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

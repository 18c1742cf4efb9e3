package testkit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/honker-go/honker/relay"
)

// RelayPartition names a partition of a relay's queue.
type RelayPartition struct {
	Queue     string
	Partition int
}

// What the ledger of a process says of its relay: which messages its handlers were given, and what
// became of each batch. An epoch is a batch, of one process.
const (
	relayGiven = "given"
	relaySaved = "saved"
	relayLost  = "lost"
)

// NoteGiven notes that a handler was given m, which carries number.
func NoteGiven(note func(what any, number int64), m *relay.Message, number int64) {
	note(fmt.Sprintf("%s/%s/%d/%d/%d", relayGiven, m.Queue, m.Partition, m.Epoch, m.Seq), number)
}

// RelayObserver notes how batches have ended.
func RelayObserver(note func(what any, number int64)) *relay.Observer {
	return &relay.Observer{
		Finished: func(e relay.Finished) {
			note(fmt.Sprintf("%s/%s/%d/%d", relaySaved, e.Queue, e.Partition, e.Epoch), int64(e.Processed))
		},
		LeaseLost: func(e relay.LeaseLost) {
			note(fmt.Sprintf("%s/%s/%d/%d", relayLost, e.Queue, e.Partition, e.Epoch), 0)
		},
	}
}

// RelayHistory is what the processes of a relay have noted together.
type RelayHistory struct {
	Numbers map[RelayPartition][]int64 // what the messages 1, 2, 3 … of a partition carry
	Again   int                        // deliveries beyond the first of each message
	Lost    int                        // batches with a progress that was refused
}

// relayBatch is what was noted of an epoch.
type relayBatch struct {
	epoch   int64
	ledger  string
	seqs    []int64
	numbers []int64
	saved   int64 // messages; -1: that it was saved is not noted
	lost    bool
}

// ReadRelayHistory reads the ledgers that match pattern. It is an error if the messages of a
// partition were not given in order: each batch has to begin where the one before it was saved, or
// where that one began, and a message has to carry the same whenever it is given.
func ReadRelayHistory(pattern string) (*RelayHistory, error) {
	ledgers, err := ReadLedgers(pattern)
	if err != nil {
		return nil, err
	}
	partitions := make(map[RelayPartition]map[int64]*relayBatch)
	for path, entries := range ledgers {
		for _, e := range entries {
			if err := noteRelay(partitions, path, e); err != nil {
				return nil, err
			}
		}
	}
	h := &RelayHistory{Numbers: make(map[RelayPartition][]int64)}
	for p, epochs := range partitions {
		if err := h.follow(p, epochs); err != nil {
			return h, fmt.Errorf("partition %s/%d: %w", p.Queue, p.Partition, err)
		}
	}
	return h, nil
}

// noteRelay adds an entry of a ledger to its epoch. Other entries are left out.
func noteRelay(partitions map[RelayPartition]map[int64]*relayBatch, ledger string, e Entry) error {
	words := strings.Split(e.What, "/")
	if len(words) < 4 {
		return nil
	}
	partition, epoch := number(words[2]), number(words[3])
	p := RelayPartition{words[1], int(partition)}
	if partitions[p] == nil {
		partitions[p] = make(map[int64]*relayBatch)
	}
	b := partitions[p][epoch]
	if b == nil {
		b = &relayBatch{epoch: epoch, ledger: ledger, saved: -1}
		partitions[p][epoch] = b
	}
	if b.ledger != ledger {
		return fmt.Errorf("partition %s/%d: epoch %d is in %s and in %s", p.Queue, p.Partition, epoch, b.ledger, ledger)
	}
	switch words[0] {
	case relayGiven:
		b.seqs, b.numbers = append(b.seqs, number(words[4])), append(b.numbers, e.Number)
	case relaySaved:
		b.saved = e.Number
	case relayLost:
		b.lost = true
	}
	return nil
}

// number is a number that this file has written.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// follow walks through the batches of a partition in the order in which they were taken.
func (h *RelayHistory) follow(p RelayPartition, epochs map[int64]*relayBatch) error {
	batches := make([]*relayBatch, 0, len(epochs))
	for _, b := range epochs {
		batches = append(batches, b)
	}
	slices.SortFunc(batches, func(a, b *relayBatch) int { return cmp.Compare(a.epoch, b.epoch) })
	low, high := int64(1), int64(1) // the next batch begins between them
	for _, b := range batches {
		if b.lost {
			h.Lost++
		}
		if len(b.seqs) == 0 { // the process died, or had no time left, before the first message
			continue
		}
		first := b.seqs[0]
		if first < low || first > high {
			return fmt.Errorf("epoch %d begins at message %d, and not at one of %d to %d", b.epoch, first, low, high)
		}
		if err := h.give(p, b); err != nil {
			return fmt.Errorf("epoch %d: %w", b.epoch, err)
		}
		low, high = b.end()
	}
	return nil
}

// end is where the batch after b may begin. What a process that died has saved is not known.
func (b *relayBatch) end() (low, high int64) {
	first := b.seqs[0]
	switch {
	case b.lost:
		return first, first
	case b.saved >= 0:
		return first + b.saved, first + b.saved
	}
	return first, first + int64(len(b.seqs))
}

// give adds the messages of a batch to what their partition was given.
func (h *RelayHistory) give(p RelayPartition, b *relayBatch) error {
	if b.saved > int64(len(b.seqs)) {
		return fmt.Errorf("%d messages were saved, %d were given", b.saved, len(b.seqs))
	}
	for i, seq := range b.seqs {
		known := int64(len(h.Numbers[p]))
		switch {
		case seq != b.seqs[0]+int64(i) || seq > known+1:
			return fmt.Errorf("the messages %v were given, of which %d were known", b.seqs, known)
		case seq == known+1:
			h.Numbers[p] = append(h.Numbers[p], b.numbers[i])
		case h.Numbers[p][seq-1] != b.numbers[i]:
			return fmt.Errorf("message %d carries %d, and before %d", seq, b.numbers[i], h.Numbers[p][seq-1])
		default:
			h.Again++
		}
	}
	return nil
}

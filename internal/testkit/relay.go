package testkit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// AddDead adds dead letters 1 to n to a queue with two partitions that was used before, as a processor would. They alternate
// between the partitions, every third is text/plain, and they died a second apart, starting in January 2000.
func AddDead(t testing.TB, db *honker.DB, queue string, n int) {
	t.Helper()
	Exec(t, db, deleteMessages)
	Exec(t, db, setMessageID, n)
	Exec(t, db, setProcessed, n, queue)
	Exec(t, db, addDead, n, queue)
}

// RelayPartition identifies a partition of a relay's queue.
type RelayPartition struct {
	Queue     string
	Partition int
}

// Kinds of ledger notes about a relay: a message given to a handler, a saved batch, and a batch whose lease was lost.
// An epoch is a batch handled by a single process.
const (
	relayGiven = "given"
	relaySaved = "saved"
	relayLost  = "lost"
)

// NoteGiven notes that a handler was given m. number identifies the message's payload.
func NoteGiven(note func(what any, number int64), m *relay.Message, number int64) {
	note(fmt.Sprintf("%s/%s/%d/%d/%d", relayGiven, m.Queue, m.Partition, m.Epoch, m.Seq), number)
}

// RelayObserver returns an observer that notes how batches end.
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

// RelayHistory is the combined history of all of a relay's processes.
type RelayHistory struct {
	Numbers map[RelayPartition][]int64 // the numbers carried by a partition's messages 1, 2, 3, …
	Again   int                        // repeated deliveries
	Lost    int                        // batches that couldn't save their progress
}

// relayBatch holds an epoch's notes.
type relayBatch struct {
	epoch   int64
	ledger  string
	seqs    []int64
	numbers []int64
	saved   int64 // number of saved messages; -1 if no save was noted
	lost    bool
}

// ReadRelayHistory reads the ledgers that match pattern. It returns an error if a partition's messages were not given
// in order. Each batch must begin where the previous batch was saved or where it began. Repeated deliveries of a
// message must carry the same number.
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

// noteRelay adds a ledger entry to its epoch. It ignores entries that aren't about a relay.
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

// number parses a number written by this file.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// follow checks a partition's batches in epoch order.
func (h *RelayHistory) follow(p RelayPartition, epochs map[int64]*relayBatch) error {
	batches := make([]*relayBatch, 0, len(epochs))
	for _, b := range epochs {
		batches = append(batches, b)
	}
	slices.SortFunc(batches, func(a, b *relayBatch) int { return cmp.Compare(a.epoch, b.epoch) })
	low, high := int64(1), int64(1) // the next batch must begin in this range
	for _, b := range batches {
		if b.lost {
			h.Lost++
		}
		if len(b.seqs) == 0 { // the process died or ran out of time before the first message
			continue
		}
		first := b.seqs[0]
		if first < low || first > high {
			return fmt.Errorf("epoch %d begins at message %d, rather than at %d to %d", b.epoch, first, low, high)
		}
		if err := h.give(p, b); err != nil {
			return fmt.Errorf("epoch %d: %w", b.epoch, err)
		}
		low, high = b.end()
	}
	return nil
}

// end returns the range in which the next batch may begin. It is wider than a single message if it is unknown whether
// a process saved its progress before it died.
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

// give adds a batch's messages to their partition's history.
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

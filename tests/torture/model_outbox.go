//go:build unix

package torture

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/honker-go/honker"
)

// outboxModel models an outbox as a queue of messages. A due message is delivered, and removed if
// that succeeds. Otherwise it is retried with a doubled delay until it has no attempts left.
type outboxModel struct {
	*queueModel
	o  *honker.Outbox[int64]
	id map[int64]int64 // job id by message number

	mu        sync.Mutex // protects the following fields, which are used by deliveries
	fates     map[int64]string
	delivered map[int64]int
	left      int // number of deliveries until enough is called
	enough    context.CancelFunc
}

// firstWait is the first retry delay. Its doubled values must not be multiples of a thousand
// seconds, see lab.
const firstWait = 1300 * time.Second

func newOutboxModel(l *lab) (model, error) {
	m := &outboxModel{id: map[int64]int64{}}
	m.o = honker.NewOutbox(l.db, "o", m.deliver, &honker.OutboxOptions{BaseBackoff: firstWait})
	m.queueModel = &queueModel{lab: l, q: m.o.Queue(), jobs: map[int64]*modelJob{}}
	return m, nil
}

// The methods claim and ack act as another process that may die between the two.
func (m *outboxModel) verbs() []verb {
	return []verb{
		{"send", 6, m.send}, {"send in a transaction", 4, m.sendTx}, {"run", 1, m.run}, {"claim", 1, m.claim}, {"ack", 1, m.ack},
		{"cancel", 1, m.cancel}, {"look", 6, m.look}, {"advance", 1, m.advance},
	}
}

func (m *outboxModel) message() (n int64, most honker.EnqueueOption, j *modelJob) {
	j = &modelJob{state: honker.StatePending, most: 1 + m.Rand.IntN(4)}
	return int64(len(m.id)) + 1, honker.MaxAttempts(j.most), j
}

func (m *outboxModel) sent(n, id int64, j *modelJob) error {
	m.id[n], m.jobs[id], m.ids = id, j, append(m.ids, id)
	return m.learn(id, m.second())
}

func (m *outboxModel) send() error {
	n, most, j := m.message()
	id, err := m.o.Send(m.ctx, n, most)
	if err != nil {
		return err
	}
	return m.sent(n, id, j)
}

// sendTx sends a message in a transaction that may be rolled back.
func (m *outboxModel) sendTx() error {
	n, most, j := m.message()
	doomed, id := m.oneIn(2), int64(0)
	err := m.db.Tx(m.ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if id, err = m.o.SendTx(ctx, tx, n, most); err == nil && doomed {
			err = errOnPurpose
		}
		return err
	})
	if err != nil || doomed {
		return ignore(err, errOnPurpose)
	}
	return m.sent(n, id, j)
}

// due returns the messages that a run should deliver.
func (m *outboxModel) due() (due []int64) {
	for n := int64(1); n <= int64(len(m.id)); n++ {
		if j := m.jobs[m.id[n]]; j != nil && j.state == honker.StatePending && j.runAt <= m.second() {
			due = append(due, n)
		}
	}
	return due
}

// fates are the possible results of a delivery.
var fates = []string{"done", "done", "done", "done", "fails", "panics", "comes later", "is snoozed", "is rejected"}

// run delivers all due messages.
func (m *outboxModel) run() error {
	if len(m.due()) == 0 {
		return nil
	}
	m.takeBack()
	due := m.due()
	ctx, enough := context.WithTimeout(m.ctx, hangs)
	defer enough()
	m.fates, m.delivered, m.left, m.enough = map[int64]string{}, map[int64]int{}, len(due), enough
	want := map[int64]int{}
	for _, n := range due {
		m.fates[n], want[n] = fates[m.Rand.IntN(len(fates))], 1
	}
	if err := m.o.Run(ctx, &honker.WorkOptions{Workers: 4}); err != nil {
		return err
	}
	if err := m.same("delivered", m.delivered, want); err != nil {
		return err
	}
	for _, n := range due {
		if err := m.settled(m.id[n], m.fates[n]); err != nil {
			return err
		}
	}
	return nil
}

func (m *outboxModel) deliver(_ context.Context, n int64) error {
	m.mu.Lock()
	m.delivered[n]++
	if m.left--; m.left == 0 {
		m.enough()
	}
	fate := m.fates[n]
	m.mu.Unlock()
	switch fate {
	case "fails":
		return errOnPurpose
	case "panics":
		panic(errOnPurpose)
	case "comes later":
		return honker.RetryAfter(span, errOnPurpose)
	case "is snoozed":
		return honker.Snooze(span)
	case "is rejected":
		return honker.Reject(errOnPurpose)
	}
	return nil
}

// settled updates the model after the delivery of a message.
func (m *outboxModel) settled(id int64, fate string) error {
	j, rest := m.jobs[id], span
	switch {
	case fate == "done":
		delete(m.jobs, id)
		return m.get(id)
	case fate == "is snoozed":
	default:
		if j.tries++; fate == "is rejected" || j.tries >= j.most {
			j.die()
			return m.get(id)
		}
		if fate != "comes later" {
			rest = firstWait << (j.tries - 1)
		}
	}
	if err := m.learn(id, m.in(rest)); err != nil {
		return err
	}
	return m.get(id)
}

package flow

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Call starts a run of child as the step with the given name, waits for it as [Wait] does, and returns its result. If
// the child fails for good or is cancelled, Call returns a [*FailedError]. A function that returns this error ends the
// run for good. The ID of the child is that of the run and name, joined by a slash; a longer one than 255 bytes is cut
// and ends with a hash. If child has a run with this ID that another run has started, a tilde and the number of the
// calling run's job follow. child must have the same DB.
//
// The child starts in the commit that records the step, so it starts once. Some process must work on its flow. Its
// result, or its failure, is recorded once Call has seen it.
func Call[In, Out any](ctx context.Context, name string, child *Flow[In, Out], in In) (Out, error) {
	a, s, err := enter(ctx, row.FlowCall, name)
	if err != nil {
		return *new(Out), failStep(name, err)
	}
	defer a.leave()
	r, err := call(ctx, a, s, child, in)
	if err == nil && r.Failed != nil {
		err = honker.Reject(r.Failed) // it would be the same in a later attempt
	}
	return r.Result, failStep(name, err)
}

// called is the recorded value of a call. Result is the zero value until the child has ended.
type called[Out any] struct {
	Flow   string // of the child
	ID     string // of the child; "" in values of older versions, see childID
	Result Out
	Failed *FailedError `json:",omitempty"`
}

// call returns the end of the child of the step s, or suspends the run.
func call[In, Out any](ctx context.Context, a *attempt, s row.FlowStepRow, child *Flow[In, Out], in In) (r called[Out], err error) {
	if !s.Ended.IsZero() {
		return r, a.decode(ctx, s, &r)
	}
	if child == nil || child.db != a.db {
		return r, fmt.Errorf("%w: the called flow is nil or has another DB", honker.ErrInvalid)
	}
	r.Flow = child.name
	if _, known := a.steps[s.Name]; known {
		r.ID, err = a.childOf(ctx, s)
	} else {
		r.ID, err = startChild(ctx, a, s, child, in)
	}
	if err != nil {
		return r, err
	}
	var over bool
	if r.Result, over, err = child.look(ctx, r.ID); err == nil && !over {
		return r, a.suspend(wait{child: row.FlowRun{Flow: child.name, ID: r.ID}})
	}
	if err != nil && !errors.As(err, &r.Failed) {
		return r, err
	}
	if err = a.finish(ctx, &s, r); err == nil {
		err = a.save(ctx, s)
	}
	return r, err
}

// childOf returns the ID of the child of a call that was recorded and has not ended.
func (a *attempt) childOf(ctx context.Context, s row.FlowStepRow) (string, error) {
	var r struct{ ID string }
	err := a.decode(ctx, s, &r)
	return cmp.Or(r.ID, childID(a.run.ID, s.Name)), err
}

// startChild starts the run that s calls and returns its ID. If another run has the first ID, it takes the second.
func startChild[In, Out any](ctx context.Context, a *attempt, s row.FlowStepRow, child *Flow[In, Out], in In) (id string, err error) {
	first := childID(a.run.ID, s.Name)
	for _, id := range []string{first, cut(first + "~" + strconv.FormatInt(a.run.Job, 10))} {
		if s.Value, err = a.encode(ctx, called[Out]{Flow: child.name, ID: id}); err != nil {
			return "", err
		}
		if taken, err := startChildAs(ctx, a, s, id, child, in); err != nil || !taken {
			return id, err
		}
	}
	return "", fmt.Errorf("%w: flow %q has another run with the ID %q already", honker.ErrInvalid, child.name, first)
}

// startChildAs starts a run of child in the transaction that records s. A run that exists already may be the child of
// this run, which was restarted. If it is not, startChildAs returns true and changes nothing.
func startChildAs[In, Out any](ctx context.Context, a *attempt, s row.FlowStepRow, id string, child *Flow[In, Out], in In) (taken bool, err error) {
	err = a.engine.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) error {
		r, err := child.start(ctx, tx, row.FlowRun{Flow: child.name, ID: id, Parent: a.run.Job}, in, nil)
		if err != nil {
			return err
		}
		on, err := a.engine.Join(ctx, tx)
		if err != nil {
			return err
		}
		if r.Job == 0 {
			other, _, err := a.store.Find(ctx, on, child.name, id)
			if taken = other.Parent != a.run.Job; err != nil || taken {
				return err
			}
		}
		_, err = a.saveOn(ctx, on, s, a.engine.Now())
		return err
	})
	if err == nil && !taken {
		err = a.saved(s, false)
	}
	return taken, err
}

// look returns the result of a run without waiting, and whether the run is over. The error of a run that has failed is
// a *FailedError.
func (f *Flow[In, Out]) look(ctx context.Context, id string) (out Out, over bool, err error) {
	text, over, err := f.outcome(ctx, id)
	if err == nil && over {
		err = f.engine.DecodeJob(ctx, QueuePrefix+f.name, text, &out)
	}
	var failed *FailedError
	return out, over || errors.As(err, &failed), err
}

// childID returns the ID of the run that a step of a run calls, unless another run has it.
func childID(parent, name string) string { return cut(parent + "/" + name) }

// cut returns an ID of at most maxName bytes. The end of a longer one is replaced by a hash.
func cut(id string) string {
	if len(id) <= maxName {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	hash := hex.EncodeToString(sum[:8])
	return engine.CutText(id, maxName-len(hash)-1) + "~" + hash
}

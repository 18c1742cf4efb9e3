package flow

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/observe"
)

// A step without an observer and without a probe pays nothing for them.
func TestStep_UnobservedAllocatesNothing(t *testing.T) {
	a := &attempt{flow: &flow{engine: &engine.Engine{Config: engine.Config{Observer: &observe.Observer{}}}}}
	s := row.FlowStepRow{Name: "charge"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ctx, end := a.observe(t.Context(), s)
		end(observe.StepEnd{Err: ctx.Err()})
		if err := a.dieAt(s, engine.StepReached); err != nil {
			t.Error(err)
		}
	}))
}

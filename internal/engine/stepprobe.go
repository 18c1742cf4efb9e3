package engine

import (
	"context"

	"github.com/honker-go/honker/internal/row"
)

// StepPoint is a moment in a step of a run of package flow.
type StepPoint int

// The points of a step.
const (
	StepReached     StepPoint = iota // the step has not begun in this attempt
	StepUncommitted                  // its function has returned; its row is not committed
	StepCommitted                    // its row is committed
)

// StepProbe is called at the points of the steps of an attempt, in turn. If it returns an error, the attempt ends there
// as if its process had died, and the flow's handler returns the error. A step without a name, with the Seq of the last
// step, stands for the end of the attempt, which has the point StepUncommitted only.
type StepProbe func(s row.FlowStepRow, at StepPoint) error

type stepProbeKey struct{}

// WithStepProbe returns a ctx with which a flow's handler calls probe. It is for package honkertest.
func WithStepProbe(ctx context.Context, probe StepProbe) context.Context {
	return context.WithValue(ctx, stepProbeKey{}, probe)
}

// StepProbeOf returns the probe of ctx, or nil if there is none.
func StepProbeOf(ctx context.Context) StepProbe {
	probe, _ := ctx.Value(stepProbeKey{}).(StepProbe)
	return probe
}

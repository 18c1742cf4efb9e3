package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cancel between the look of runJob and the start of the handler ends the handler's ctx.
func TestPool_HandlerContext_CancelledBefore(t *testing.T) {
	p := &Pool{source: &Source{Engine: clockOnly}, handlerCtx: t.Context()}
	j := &activeJob{handler: new(Handler), claim: new(Claim)}
	j.cancelLocked()
	ctx, end := p.handlerContext(j)
	defer end()
	require.ErrorIs(t, context.Cause(ctx), ErrCancelled)
}

package engine

import (
	"context"
	"strings"
)

// maxActor bounds an actor's name, in bytes.
const maxActor = 1024

type actorKey struct{}

// WithActor returns a ctx that names the person or program behind its verbs. name is cut to 1024
// bytes of UTF-8.
func WithActor(ctx context.Context, name string) context.Context {
	name = strings.ReplaceAll(name[:min(len(name), maxActor)], "\x00", "")
	return context.WithValue(ctx, actorKey{}, strings.ToValidUTF8(name, ""))
}

// Actor is the name that WithActor gave; "" for none.
func Actor(ctx context.Context) string {
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}

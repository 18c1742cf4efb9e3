package engine

import "context"

// maxActor bounds an actor's name, in bytes.
const maxActor = 1024

type (
	actorKey  struct{}
	remoteKey struct{}
)

// WithActor returns a ctx that names the person or program behind its verbs. name is cut to 1024
// bytes of UTF-8.
func WithActor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, actorKey{}, CutText(name, maxActor))
}

// Actor is the name that WithActor gave; "" for none.
func Actor(ctx context.Context) string {
	if ctx == nil {
		return "" // the verb refuses it
	}
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}

// WithRemote returns a ctx that says from where its verbs are called, cut as WithActor does.
func WithRemote(ctx context.Context, addr string) context.Context {
	return context.WithValue(ctx, remoteKey{}, CutText(addr, maxActor))
}

func remote(ctx context.Context) string {
	if ctx == nil {
		return ""
	}
	addr, _ := ctx.Value(remoteKey{}).(string)
	return addr
}

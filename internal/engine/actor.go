package engine

import "context"

// maxActor is the maximum length of an actor's name in bytes.
const maxActor = 1024

type (
	actorKey  struct{}
	remoteKey struct{}
)

// WithActor returns a copy of ctx that carries the name of the person or program on whose behalf
// verbs are called. name is truncated to 1024 bytes of UTF-8.
func WithActor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, actorKey{}, CutText(name, maxActor))
}

// Actor returns the name set with WithActor, or "" if there is none.
func Actor(ctx context.Context) string {
	if ctx == nil {
		return "" // the verb itself rejects a nil ctx
	}
	name, _ := ctx.Value(actorKey{}).(string)
	return name
}

// WithRemote returns a copy of ctx that carries the address from which verbs are called. The address is truncated
// like the name in WithActor.
func WithRemote(ctx context.Context, addr string) context.Context {
	return context.WithValue(ctx, remoteKey{}, CutText(addr, maxActor))
}

// remote returns the address set with WithRemote, or "" if there is none.
func remote(ctx context.Context) string {
	if ctx == nil {
		return ""
	}
	addr, _ := ctx.Value(remoteKey{}).(string)
	return addr
}

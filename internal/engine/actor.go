package engine

import (
	"context"
	"strings"
)

// maxActor bounds an actor's name, in bytes.
const maxActor = 1024

type (
	actorKey  struct{}
	remoteKey struct{}
)

// WithActor returns a ctx that names the person or program behind its verbs. name is cut to 1024
// bytes of UTF-8.
func WithActor(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, actorKey{}, actorText(name))
}

// actorText is what is kept of a text.
func actorText(text string) string {
	text = strings.ReplaceAll(text[:min(len(text), maxActor)], "\x00", "")
	return strings.ToValidUTF8(text, "")
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
	return context.WithValue(ctx, remoteKey{}, actorText(addr))
}

func remote(ctx context.Context) string {
	if ctx == nil {
		return ""
	}
	addr, _ := ctx.Value(remoteKey{}).(string)
	return addr
}

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Codec is honker.Codec.
type Codec interface {
	Encode(ctx context.Context, queue string, payload json.RawMessage) (json.RawMessage, error)
	Decode(ctx context.Context, queue string, stored json.RawMessage) (json.RawMessage, error)
}

// EncodeJob returns payload, a job's JSON arguments, as it is stored in queue. Without a codec this
// is payload itself. It must be called before the write transaction, because a codec may be slow.
func (e *Engine) EncodeJob(ctx context.Context, queue, payload string) (string, error) {
	if e.Codec == nil {
		return payload, nil
	}
	if err := CheckContext(ctx); err != nil {
		return "", err
	}
	stored, err := e.Codec.Encode(ctx, queue, json.RawMessage(payload))
	if err != nil {
		return "", fmt.Errorf("codec: %w", err)
	}
	if !json.Valid(stored) || !utf8.Valid(stored) {
		return "", fmt.Errorf("%w: codec: the encoded payload is not JSON text", ErrInvalid)
	}
	if len(stored) > e.MaxPayload {
		return "", fmt.Errorf("%w: the encoded payload has %d bytes; the maximum is %d (Options.MaxPayload)", ErrInvalid, len(stored), e.MaxPayload)
	}
	return string(stored), nil
}

// Recode converts a stored payload of queue from for storage in queue to. The conversion is needed
// because a codec may bind a payload to its queue.
func (e *Engine) Recode(ctx context.Context, from, to, stored string) (string, error) {
	if e.Codec == nil || from == to {
		return stored, nil
	}
	payload, err := e.Codec.Decode(ctx, from, json.RawMessage(stored))
	if err != nil {
		return "", fmt.Errorf("codec: %w", err)
	}
	return e.EncodeJob(ctx, to, string(payload))
}

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

// Payloads returns the payloads of jobs with the given arguments, as they are stored in queue: JSON text,
// encoded by the codec. keys is called with the text before the codec has encoded it; nil calls nothing.
// Payloads must be called before the write transaction, because a codec may be slow.
func Payloads[T any](ctx context.Context, e *Engine, queue string, args []T, keys func(payloads []string) error) ([]string, error) {
	payloads := make([]string, len(args))
	for i, a := range args {
		text, err := Encode(a, e.MaxPayload)
		if err != nil && len(args) > 1 {
			err = fmt.Errorf("job %d of %d: %w", i+1, len(args), err)
		}
		if err != nil {
			return nil, err
		}
		payloads[i] = text
	}
	if keys != nil {
		if err := keys(payloads); err != nil {
			return nil, err
		}
	}
	for i, text := range payloads {
		var err error
		if payloads[i], err = e.EncodeJob(ctx, queue, text); err != nil {
			return nil, err
		}
	}
	return payloads, nil
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

// CodecError is an error that the codec returned. It may be temporary.
type CodecError struct{ Err error }

// Error implements error.
func (e *CodecError) Error() string { return "codec: " + e.Err.Error() }

// Unwrap returns the codec's error.
func (e *CodecError) Unwrap() error { return e.Err }

// DecodeJob decodes a payload stored in queue into v. It returns the errors of Decode and a *[CodecError].
func (e *Engine) DecodeJob(ctx context.Context, queue, stored string, v any) error {
	text := json.RawMessage(stored)
	if e.Codec != nil {
		var err error
		if text, err = e.Codec.Decode(ctx, queue, text); err != nil {
			return &CodecError{err}
		}
	}
	return Decode(stored, text, v)
}

// Recode converts a payload stored in the queue from for storage in the queue to. The conversion is needed because a
// codec may bind a payload to its queue.
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

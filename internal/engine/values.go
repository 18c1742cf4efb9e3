package engine

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxName      = 1024
	maxErrorText = 16 << 10
)

// CheckName checks that all language bindings can store name: it must be 1 to 1024 bytes of UTF-8 without NUL. kind
// describes the name in error messages.
func CheckName(kind, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the %s is empty", ErrInvalid, kind)
	case len(name) > maxName:
		return fmt.Errorf("%w: the %s has %d bytes; the maximum is %d", ErrInvalid, kind, len(name), maxName)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%w: the %s contains NUL", ErrInvalid, kind)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the %s is not UTF-8", ErrInvalid, kind)
	}
	return nil
}

// CheckPayloadType returns ErrInvalid for byte slices, because JSON would encode them as base64,
// which no other binding expects. Byte slices with their own JSON encoding, such as
// json.RawMessage, are allowed.
func CheckPayloadType(t reflect.Type) error {
	if t == nil || t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return nil
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return CheckPayloadType(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return fmt.Errorf("%w: payload type %v: bytes are not JSON; use json.RawMessage, or encode them as a string", ErrInvalid, t)
	}
	return nil
}

// Encode returns the JSON text to store for v. It returns an error if the text is longer than limit
// bytes.
func Encode(v any, limit int) (string, error) {
	if err := CheckPayloadType(reflect.TypeOf(v)); err != nil {
		return "", err
	}
	text, err := Marshal(v)
	if err != nil {
		return "", err
	}
	if len(text) > limit {
		return "", fmt.Errorf("%w: the payload has %d bytes; the maximum is %d (Options.MaxPayload)", ErrInvalid, len(text), limit)
	}
	return text, nil
}

// Marshal is Encode without a limit.
func Marshal(v any) (string, error) {
	text, isRaw := v.(json.RawMessage)
	if !isRaw || text == nil {
		var err error
		if text, err = json.Marshal(v); err != nil {
			return "", fmt.Errorf("%w: payload: %w", ErrInvalid, err)
		}
	}
	if isRaw && !json.Valid(text) || !utf8.Valid(text) {
		return "", fmt.Errorf("%w: payload is not JSON text", ErrInvalid)
	}
	return string(text), nil
}

// PayloadText returns a stored payload. If another program has stored a BLOB, or text that is not
// JSON, PayloadText returns the bytes unchanged, and decoding them fails.
func PayloadText(v any) json.RawMessage {
	switch p := v.(type) {
	case string:
		return json.RawMessage(p)
	case []byte:
		return json.RawMessage(p)
	}
	return nil
}

// Decode decodes a stored payload into v. text must be the PayloadText of stored. v may retain
// parts of text rather than copies, because payloads may be as large as a megabyte and many are
// held at once.
func Decode(stored any, text json.RawMessage, v any) error {
	if _, ok := stored.(string); !ok {
		return fmt.Errorf("payload is stored as %T, not as text", stored)
	}
	if raw, ok := v.(*json.RawMessage); ok && json.Valid(text) {
		*raw = bytes.TrimSpace(text) // as encoding/json does
		return nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("cannot decode payload: %w", err)
	}
	return nil
}

// Seconds returns d in seconds, rounded up. honker's columns hold whole seconds, and nothing may happen earlier than
// requested.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// UnixUp returns t as a Unix time, rounded up to a whole second.
func UnixUp(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// Positive returns ErrInvalid unless d is positive. what names d in the error.
func Positive(what string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%w: %s %v is not positive", ErrInvalid, what, d)
	}
	return nil
}

// NotNegative returns ErrInvalid if d is negative. what names d in the error.
func NotNegative(what string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%w: negative %s %v", ErrInvalid, what, d)
	}
	return nil
}

// Describe returns the text of err as stored in the file: UTF-8 without NUL and of limited length.
// It must be called where the error occurred, because Error methods may panic and must not do so in
// a shared transaction.
func Describe(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("an error of type %T, whose Error method panics", err)
		}
	}()
	text = strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", "\uFFFD"), "\uFFFD")
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "")
}

// CutText returns text as stored in the file: valid UTF-8 without NUL, truncated to no more than most bytes.
func CutText(text string, most int) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), most)], "\x00", ""), "")
}

// DeadlineMS returns the time d after now in Unix milliseconds, rounded up so that nothing expires
// earlier than requested. It calls Add twice, because adding the durations first could overflow.
func DeadlineMS(now time.Time, d time.Duration) int64 {
	return now.Add(d).Add(time.Millisecond - 1).UnixMilli()
}

// UnixAfter returns the time d after now, rounded up to a whole second so that nothing happens
// earlier than requested. If d is not positive, it returns the current second, which has already
// begun: a job that is due immediately must not wait for the next second.
func UnixAfter(now time.Time, d time.Duration) int64 {
	if d <= 0 {
		return now.Unix()
	}
	return UnixUp(now.Add(d))
}

// Expiry returns the Unix time at which an object kept for ttl expires. If ttl is not positive, it
// returns 0, which means never.
func Expiry(now time.Time, ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return UnixAfter(now, ttl)
}

package engine

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/honker-go/honker/internal/store"
)

const (
	maxName      = 1024
	maxErrorText = 16 << 10
)

// CheckName holds a name to what all bindings can store: UTF-8 of 1 to 1024
// bytes without NUL.
func CheckName(kind, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty %s", ErrInvalid, kind)
	case len(name) > maxName:
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrInvalid, kind, len(name), maxName)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%w: NUL in %s", ErrInvalid, kind)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %s is not UTF-8", ErrInvalid, kind)
	}
	return nil
}

// CheckPayloadType refuses bytes: JSON would turn them into base64, which no other
// binding expects. Bytes that know how to become JSON, as json.RawMessage does, are fine.
func CheckPayloadType(t reflect.Type) error {
	if t == nil || t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return nil
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return CheckPayloadType(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return fmt.Errorf("%w: payload type %v: bytes are not JSON; use json.RawMessage, or a string of your own encoding", ErrInvalid, t)
	}
	return nil
}

// Encode turns v into the JSON text that is stored.
func Encode(v any, limit int) (string, error) {
	if err := CheckPayloadType(reflect.TypeOf(v)); err != nil {
		return "", err
	}
	text, err := Marshal(v)
	if err != nil {
		return "", err
	}
	if len(text) > limit {
		return "", fmt.Errorf("%w: payload of %d bytes, at most %d (Options.MaxPayload)", ErrInvalid, len(text), limit)
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

// PayloadText returns a stored payload. Another program may have stored a BLOB, or text that
// is no JSON: the bytes are handed out, and decoding them says what is wrong.
func PayloadText(v any) json.RawMessage {
	switch p := v.(type) {
	case string:
		return json.RawMessage(p)
	case []byte:
		return json.RawMessage(p)
	}
	return nil
}

// Decode reads a stored payload into v. text is the PayloadText of it, of which v may keep a
// part: a payload may be a megabyte, and many are held at once.
func Decode(stored any, text json.RawMessage, v any) error {
	if _, ok := stored.(string); !ok {
		return fmt.Errorf("payload is stored as %T, not as text", stored)
	}
	if raw, ok := v.(*json.RawMessage); ok && json.Valid(text) {
		*raw = bytes.TrimSpace(text) // as encoding/json does
		return nil
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("payload does not decode: %w", err)
	}
	return nil
}

// Seconds rounds a span up: honker's columns hold whole seconds, and nothing is to
// happen earlier than asked.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// UnixUp rounds an instant up to a whole second.
func UnixUp(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// Instant turns a stored second back, see [store.Instant]; 0 is the zero time.
func Instant(unix int64) time.Time { return store.Instant(unix) }

// InstantMS is Instant for our own columns.
func InstantMS(ms int64) time.Time { return store.InstantMS(ms) }

// Span turns a stored span of seconds back; the longest there is stands for what is longer.
func Span(seconds int64) time.Duration { return span(seconds, time.Second) }

// Milliseconds is Span for our own columns.
func Milliseconds(ms int64) time.Duration { return span(ms, time.Millisecond) }

func span(n int64, unit time.Duration) time.Duration {
	longest := math.MaxInt64 / int64(unit)
	return time.Duration(min(max(n, -longest), longest)) * unit
}

// Positive checks a span that has to be at least a moment.
func Positive(what string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%w: %s %v is not positive", ErrInvalid, what, d)
	}
	return nil
}

// NotNegative checks a span that may be none.
func NotNegative(what string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%w: negative %s %v", ErrInvalid, what, d)
	}
	return nil
}

// Describe bounds the text of an error that goes into the file. It runs where the error
// came from: a text that panics must not meet a commit that others share.
func Describe(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("an error of type %T, whose text panics", err)
		}
	}()
	text = strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", "\uFFFD"), "\uFFFD")
	if len(text) <= maxErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:maxErrorText], "")
}

// CutText is the part of a text that the file keeps: most bytes of UTF-8 without NUL.
func CutText(text string, most int) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), most)], "\x00", ""), "")
}

// DeadlineMS is d after now in milliseconds, rounded up: nothing is to lapse earlier than
// asked. Two sums, since one could overflow.
func DeadlineMS(now time.Time, d time.Duration) int64 {
	return now.Add(d).Add(time.Millisecond - 1).UnixMilli()
}

// UnixAfter is the first whole second that is not before d after now, so nothing happens
// earlier than asked. A d that is not positive is the second of now, which has begun: what
// is due at once must not wait for the next one.
func UnixAfter(now time.Time, d time.Duration) int64 {
	if d <= 0 {
		return now.Unix()
	}
	return UnixUp(now.Add(d))
}

// Expiry is the second at which something ends that is kept for ttl: never (0) for a ttl
// that is not positive.
func Expiry(now time.Time, ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return UnixAfter(now, ttl)
}

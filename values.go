package honker

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxName      = 1024
	maxErrorText = 16 << 10
)

// checkName holds every name to what all bindings can store: UTF-8 of 1 to 1024
// bytes without NUL.
func checkName(kind, name string) error {
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

// checkPayloadType refuses bytes: JSON would turn them into base64, which no other
// binding expects. Bytes that know how to become JSON, as json.RawMessage does, are fine.
func checkPayloadType(t reflect.Type) error {
	if t == nil || t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return nil
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return checkPayloadType(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return fmt.Errorf("%w: payload type %v: bytes are not JSON; use json.RawMessage, or a string of your own encoding", ErrInvalid, t)
	}
	return nil
}

// encode turns v into the JSON text that is stored.
func encode(v any, limit int) (string, error) {
	if err := checkPayloadType(reflect.TypeOf(v)); err != nil {
		return "", err
	}
	text, err := marshal(v)
	if err != nil {
		return "", err
	}
	if len(text) > limit {
		return "", fmt.Errorf("%w: payload of %d bytes, at most %d (Options.MaxPayload)", ErrInvalid, len(text), limit)
	}
	return text, nil
}

func marshal(v any) (string, error) {
	text, isRaw := v.(json.RawMessage)
	if !isRaw || text == nil {
		var err error
		if text, err = json.Marshal(v); err != nil {
			return "", fmt.Errorf("%w: payload: %w", ErrInvalid, err)
		}
	}
	if isRaw && !json.Valid(text) || !utf8.Valid(text) {
		return "", fmt.Errorf("%w: payload is no JSON text", ErrInvalid)
	}
	return string(text), nil
}

// payloadText returns a stored payload. Somebody may have stored a BLOB, or text
// that is no JSON: the bytes are handed out, decoding them says what is wrong.
func payloadText(v any) json.RawMessage {
	switch p := v.(type) {
	case string:
		return json.RawMessage(p)
	case []byte:
		return json.RawMessage(p)
	}
	return nil
}

// decode reads a stored payload into v.
func decode(stored any, v any) error {
	text, ok := stored.(string)
	if !ok {
		return fmt.Errorf("payload is stored as %T, not as text", stored)
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("payload does not decode: %w", err)
	}
	return nil
}

// seconds rounds a span up: honker's columns hold whole seconds, and nothing is to
// happen earlier than asked.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// unixUp rounds an instant up to a whole second.
func unixUp(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// instant turns a stored second back; 0 is the zero time.
func instant(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0)
}

// instantMS is instant for our own columns.
func instantMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// milliseconds turns a stored span back; the longest there is stands for what is longer.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// positive checks a span that has to be at least a moment.
func positive(what string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%w: %s %v is not positive", ErrInvalid, what, d)
	}
	return nil
}

func notNegative(what string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%w: negative %s %v", ErrInvalid, what, d)
	}
	return nil
}

// describe bounds the text of an error that goes into the file. It runs where the error
// came from: a text that panics must not meet a commit that others share.
func describe(err error) (text string) {
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

package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// ArgsKey returns the unique key of a payload. The key is computed from the given fields of the payload's JSON object
// or, if fields is empty, from the whole payload. It is a digest of canonical JSON: sorted keys, numbers as written,
// no whitespace, and only the escapes that JSON requires. ArgsKey returns an error if the payload is not JSON or
// lacks a field.
func ArgsKey(payload string, fields []string) (string, error) {
	value, err := argsOf(payload, fields)
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text) // Encode sorts the keys
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return "", err
	}
	sum := sha256.Sum256(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	return "h:" + hex.EncodeToString(sum[:16]), nil
}

// argsOf returns the value for ArgsKey to digest.
func argsOf(payload string, fields []string) (any, error) {
	var value any
	dec := json.NewDecoder(bytes.NewReader([]byte(payload)))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	if len(fields) == 0 {
		return value, nil
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the arguments have no field %q: they are not a JSON object", fields[0])
	}
	chosen := make(map[string]any, len(fields))
	for _, field := range fields {
		if chosen[field], ok = object[field]; !ok {
			return nil, fmt.Errorf("the arguments have no field %q", field)
		}
	}
	return chosen, nil
}

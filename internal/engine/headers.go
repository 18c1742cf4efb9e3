package engine

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits on job headers.
const (
	maxHeaders     = 64
	maxHeaderBytes = 8 << 10
)

// EncodeHeaders encodes job headers as a JSON object, or as "" if there are none. It returns
// ErrInvalid if a header is not allowed.
func EncodeHeaders(h map[string]string) (string, error) {
	if len(h) == 0 {
		return "", nil
	}
	var errs []error
	size := 0
	for name, value := range h {
		size += len(name) + len(value)
		if name == "" {
			errs = append(errs, fmt.Errorf("%w: a header has no name", ErrInvalid))
		}
		if !utf8.ValidString(name+value) || strings.Contains(name+value, "\x00") {
			errs = append(errs, fmt.Errorf("%w: header %q is not UTF-8 or contains NUL", ErrInvalid, name))
		}
	}
	if len(h) > maxHeaders || size > maxHeaderBytes {
		errs = append(errs, fmt.Errorf("%w: %d headers have %d bytes; the maximum is %d headers with %d bytes", ErrInvalid, len(h), size, maxHeaders, maxHeaderBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return Marshal(h)
}

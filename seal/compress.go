package seal

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"sync"
)

// leastCompressed is the length below which compression is not tried: base64 and the tag weigh more.
const leastCompressed = 128

// writers are used again, since a new one allocates about a megabyte.
var writers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.DefaultCompression) // fails for a level that there is not
	return w
}}

// compress returns text compressed, if that is shorter.
func compress(text []byte) (small []byte, ok bool) {
	if len(text) < leastCompressed {
		return nil, false
	}
	w := writers.Get().(*flate.Writer)
	defer writers.Put(w)
	var b bytes.Buffer
	w.Reset(&b)
	_, err := w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, false // a buffer does not fail
	}
	return b.Bytes(), b.Len() < len(text)
}

var errTooLarge = errors.New("the opened payload is too large")

// decompress returns what text was before, if that has no more than limit bytes. A few bytes can become
// gigabytes, so the limit is kept while reading.
func decompress(text []byte, limit int) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(text))
	defer r.Close()
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(out) > limit {
		return nil, errTooLarge
	}
	return out, nil
}

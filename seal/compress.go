package seal

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"sync"
)

// leastCompressed is the payload length in bytes below which compression is not tried. The fixed
// overhead of the envelope outweighs the gain for shorter payloads.
const leastCompressed = 128

// writers pools flate writers. A new writer allocates about a megabyte.
var writers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.DefaultCompression) // fails only for an invalid level
	return w
}}

// compress returns the compressed text. ok reports whether it is shorter than text.
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
		return nil, false // cannot happen: writes to a bytes.Buffer do not fail
	}
	return b.Bytes(), b.Len() < len(text)
}

var errTooLarge = errors.New("the decrypted payload is too large")

// decompress returns the decompressed text, or errTooLarge if it is longer than limit bytes. A few
// bytes can expand to gigabytes, so decompress stops reading at the limit.
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

package admin

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/row"
)

// Cursor is the end of a page, as text that is safe in a URL. It is valid in any process for as long as the
// file exists, but only with the filter and order of its page.
type Cursor string

// cursorText is the JSON encoding of a cursor.
type cursorText struct {
	Binds string    `json:"f"` // identifies the filter and the order
	ID    int64     `json:"i"`
	In    row.Table `json:"t,omitempty"`
	A     any       `json:"a,omitempty"` // sort keys, as in row.Place
	B     any       `json:"b,omitempty"`
}

func cursorOf(at *row.Place, binds string) Cursor {
	text, _ := json.Marshal(cursorText{binds, at.ID, at.In, at.A, at.B}) // numbers and strings always marshal
	return Cursor(base64.RawURLEncoding.EncodeToString(text))
}

// place decodes the position at which a list continues; nil for the beginning.
func (c Cursor) place(binds string) (*row.Place, error) {
	if c == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(string(c))
	if err != nil {
		return nil, fmt.Errorf("%w: malformed cursor %.40q", honker.ErrInvalid, c)
	}
	var t cursorText
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // float64 cannot hold ids beyond 2^53
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("%w: malformed cursor %.40q", honker.ErrInvalid, c)
	}
	if t.Binds != binds {
		return nil, fmt.Errorf("%w: the cursor belongs to another filter or order", honker.ErrInvalid)
	}
	return &row.Place{ID: t.ID, In: t.In, A: number(t.A), B: number(t.B)}, nil
}

// number converts a JSON number to the Go type of the SQLite value.
func number(v any) any {
	n, isNumber := v.(json.Number)
	if !isNumber {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64() // the decoder has checked the syntax
	return f
}

// binding returns a hash that identifies a filter and an order.
func binding(sel row.JobSelect, fingerprint string, order Order) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v %q %d", sel, fingerprint, order)) // %#v prints maps in key order
	return hex.EncodeToString(sum[:8])
}

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

// Cursor is where a page has ended: text that is safe in a URL, for the filter and order that it came
// from. It stays good for as long as the file does, in any process.
type Cursor string

// cursorText is what a cursor says.
type cursorText struct {
	Binds string    `json:"f"` // filter and order
	ID    int64     `json:"i"`
	In    row.Table `json:"t,omitempty"`
	A     any       `json:"a,omitempty"` // what the order goes by, as in store.Place
	B     any       `json:"b,omitempty"`
}

func cursorOf(at *row.Place, binds string) Cursor {
	text, _ := json.Marshal(cursorText{binds, at.ID, at.In, at.A, at.B}) // numbers and texts cannot fail
	return Cursor(base64.RawURLEncoding.EncodeToString(text))
}

// place is where the list goes on; nil for its beginning.
func (c Cursor) place(binds string) (*row.Place, error) {
	if c == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(string(c))
	if err != nil {
		return nil, fmt.Errorf("%w: cursor %.40q", honker.ErrInvalid, c)
	}
	var t cursorText
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // ids beyond 2^53
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("%w: cursor %.40q", honker.ErrInvalid, c)
	}
	if t.Binds != binds {
		return nil, fmt.Errorf("%w: a cursor of another filter or order", honker.ErrInvalid)
	}
	return &row.Place{ID: t.ID, In: t.In, A: number(t.A), B: number(t.B)}, nil
}

// number makes a JSON number what SQLite has it as.
func number(v any) any {
	n, isNumber := v.(json.Number)
	if !isNumber {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64() // it was one
	return f
}

// binding tells filters and orders apart.
func binding(sel row.JobSelect, fingerprint string, order Order) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v %q %d", sel, fingerprint, order)) // maps are printed in the order of their keys
	return hex.EncodeToString(sum[:8])
}

package admin

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Cursor marks the end of a page. It is safe to use in a URL. A cursor is valid in any process and for the
// lifetime of the file, but only with the same filter and order.
type Cursor string

// cursorText is the JSON encoding of a cursor.
type cursorText struct {
	Binds string      `json:"f"` // identifies the filter and the order
	ID    int64       `json:"i"`
	In    row.Table   `json:"t,omitempty"`
	A     row.SortKey `json:"a,omitzero"` // as in row.Place
	B     row.SortKey `json:"b,omitzero"`
}

func cursorOf(at *row.Place, binds string) Cursor {
	text, _ := json.Marshal(cursorText{binds, at.ID, at.In, at.A, at.B}) // marshaling numbers and strings cannot fail
	return Cursor(base64.RawURLEncoding.EncodeToString(text))
}

// place decodes the position from which a list continues. It returns nil for the beginning of the
// list.
func (c Cursor) place(binds string) (*row.Place, error) {
	if c == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(string(c))
	if err != nil {
		return nil, fmt.Errorf("%w: malformed cursor %.40q", honker.ErrInvalid, c)
	}
	var t cursorText
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("%w: malformed cursor %.40q", honker.ErrInvalid, c)
	}
	if t.Binds != binds {
		return nil, fmt.Errorf("%w: the cursor belongs to another filter or order", honker.ErrInvalid)
	}
	return &row.Place{ID: t.ID, In: t.In, A: t.A, B: t.B}, nil
}

// binding returns a hash that identifies a filter and an order.
func binding(sel row.JobSelect, fingerprint string, order Order) string {
	var bounds []int64
	for _, t := range []*time.Time{&sel.CreatedSince, &sel.CreatedBefore, &sel.RunSince, &sel.RunBefore, &sel.DiedSince, &sel.DiedBefore} {
		bounds = append(bounds, engine.UnixUp(*t)) // %#v would distinguish equal times in different locations
		*t = time.Time{}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v %d %q %d", sel, bounds, fingerprint, order)) // %#v prints maps in key order
	return hex.EncodeToString(sum[:8])
}

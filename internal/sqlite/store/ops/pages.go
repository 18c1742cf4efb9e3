package ops

import (
	"context"
	"database/sql"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

const (
	sqlTrees = `SELECT s.name, s.tbl_name, s.rootpage, s.type = 'index',
  coalesce((SELECT cid FROM pragma_table_info(s.tbl_name) WHERE name IN ('topic', 'queue') AND s.type = 'table'), -1)
FROM sqlite_schema AS s WHERE s.rootpage > 0 ORDER BY s.tbl_name, s.type DESC, s.name`

	sqlPage     = `SELECT data FROM sqlite_dbpage WHERE pgno = ?1`
	sqlPageSize = `SELECT page_size FROM pragma_page_size`
)

// Limits of the pages that are read. The pages above the leaves are hundreds of times fewer than the leaves, so a level of
// them is read completely in all but the largest files.
const (
	innerPages  = 500 // per level of a tree
	leafPages   = 16  // per tree
	sharedPages = 200 // leaves per tree whose rows are divided into parts
)

// partTables holds the tables whose rows belong to topics or queues, and that may be large.
var partTables = []string{"_honker_stream", "_honker_live", "_honker_dead", "_honkerx_done"}

// tree is the b-tree of a table or an index.
type tree struct {
	name, table string
	root        int64
	index       bool
	part        int // column with the topic or queue, or -1
}

// Sizes estimates the sizes of tables. It counts the pages of each b-tree from the pages above its leaves, and samples the
// leaves for the number of rows and of overflow pages. It reads a few thousand pages at most.
func (Files) Sizes(ctx context.Context, q row.Querier) (sizes row.Sizes, err error) {
	w := &walk{ctx: ctx, q: q}
	if _, err := rows.One(ctx, q, sqlPageSize, nil, &w.pageSize); err != nil {
		return sizes, err
	}
	header, err := w.page(1)
	if err != nil {
		return sizes, err
	}
	w.usable = w.pageSize - int64(header[20])
	var trees []tree
	err = rows.Each(ctx, q, sqlTrees, func(r *sql.Rows) error {
		var t tree
		err := r.Scan(&t.name, &t.table, &t.root, &t.index, &t.part)
		if !slices.Contains(partTables, t.table) {
			t.part = -1
		}
		trees = append(trees, t)
		return err
	})
	if err != nil {
		return sizes, err
	}
	byTable := make(map[string][]measured)
	var names []string
	for _, t := range trees {
		m, err := w.measure(t)
		if err != nil {
			return sizes, err
		}
		if !strings.HasPrefix(t.table, "_honker") {
			sizes.Other += m.bytes
			continue
		}
		if byTable[t.table] == nil {
			names = append(names, t.table)
		}
		byTable[t.table] = append(byTable[t.table], m)
	}
	for _, name := range names {
		table, parts := total(name, byTable[name])
		sizes.Tables = append(sizes.Tables, table)
		sizes.Parts = append(sizes.Parts, parts...)
	}
	return sizes, nil
}

// total adds a table's trees up. Parts take a share of the table by their bytes, and of the indexes by their rows.
func total(name string, all []measured) (t row.TableBytes, parts []row.PartBytes) {
	t.Name = name
	var of *measured
	for i, m := range all {
		if m.index {
			t.Indexes += m.bytes
			continue
		}
		of, t.Bytes, t.Rows = &all[i], m.bytes, m.rows
	}
	if of == nil || of.sampled.bytes == 0 {
		return t, nil
	}
	for part, s := range of.parts {
		byBytes, byRows := float64(s.bytes)/float64(of.sampled.bytes), float64(s.rows)/float64(of.sampled.rows)
		parts = append(parts, row.PartBytes{Table: name, Name: part, Rows: int64(float64(t.Rows)*byRows + 0.5),
			Bytes: int64(float64(t.Bytes)*byBytes + float64(t.Indexes)*byRows)})
	}
	slices.SortFunc(parts, func(a, b row.PartBytes) int { return strings.Compare(a.Name, b.Name) })
	return t, parts
}

// sample adds up rows of leaves.
type sample struct{ rows, bytes int64 }

// measured is the estimated size of a tree.
type measured struct {
	tree
	rows, bytes int64
	sampled     sample
	parts       map[string]sample
}

// walk reads pages of a file.
type walk struct {
	ctx              context.Context
	q                row.Querier
	pageSize, usable int64
}

func (w *walk) page(number int64) (data []byte, err error) {
	_, err = rows.One(w.ctx, w.q, sqlPage, []any{number}, &data)
	return data, err
}

// The types of b-tree pages.
const (
	innerIndex, innerTable = 2, 5
	leafIndex, leafTable   = 10, 13
)

// measure estimates the size of a tree. All leaves of a tree have the same depth.
func (w *walk) measure(t tree) (m measured, err error) {
	m = measured{tree: t, parts: map[string]sample{}}
	level, scale, pages := []int64{t.root}, 1.0, 1.0
	for {
		data, err := w.page(level[0])
		if err != nil {
			return m, err
		}
		if kind(data) != innerIndex && kind(data) != innerTable {
			break
		}
		read := evenly(level, innerPages)
		scale *= float64(len(level)) / float64(len(read))
		level = nil
		for _, number := range read {
			if data, err = w.page(number); err != nil {
				return m, err
			}
			level = append(level, children(data)...)
		}
		if len(level) == 0 {
			return m, nil // the file is damaged
		}
		pages += float64(len(level)) * scale
	}
	most := leafPages
	if t.part >= 0 {
		most = sharedPages
	}
	leaves := evenly(level, most)
	overflow := int64(0)
	for _, number := range leaves {
		data, err := w.page(number)
		if err != nil {
			return m, err
		}
		overflow += w.leaf(data, &m)
	}
	scale *= float64(len(level)) / float64(len(leaves))
	m.rows = int64(float64(m.sampled.rows)*scale + 0.5)
	m.bytes = int64(pages+float64(overflow)*scale) * w.pageSize
	return m, nil
}

func kind(page []byte) byte {
	if len(page) < 12 {
		return 0
	}
	return page[0]
}

// evenly returns up to n of the numbers, at equal distances.
func evenly(all []int64, n int) []int64 {
	if len(all) <= n {
		return all
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = all[i*len(all)/n]
	}
	return out
}

// cells returns the offsets of a page's cells. The page has its array of cells after a header of the given size.
func cells(page []byte, header int) (offsets []int) {
	n := int(binary.BigEndian.Uint16(page[3:]))
	for i := range n {
		at := header + 2*i
		if at+2 > len(page) {
			break
		}
		if offset := int(binary.BigEndian.Uint16(page[at:])); offset+4 <= len(page) {
			offsets = append(offsets, offset)
		}
	}
	return offsets
}

// children returns the pages below an inner page.
func children(page []byte) (numbers []int64) {
	if k := kind(page); k != innerIndex && k != innerTable {
		return nil
	}
	for _, offset := range cells(page, 12) {
		numbers = append(numbers, int64(binary.BigEndian.Uint32(page[offset:])))
	}
	return append(numbers, int64(binary.BigEndian.Uint32(page[8:])))
}

// leaf adds the rows of a leaf to m's sample, and returns the number of their overflow pages.
func (w *walk) leaf(page []byte, m *measured) (overflow int64) {
	k := kind(page)
	if k != leafIndex && k != leafTable {
		return 0
	}
	for _, offset := range cells(page, 8) {
		payload, at := varint(page, offset)
		if k == leafTable {
			_, at = varint(page, at) // rowid
		}
		local := w.local(payload, k == leafTable)
		more := (payload - local + w.usable - 5) / (w.usable - 4)
		overflow += more
		size := local + more*w.usable
		m.sampled.rows++
		m.sampled.bytes += size
		if m.part < 0 || k != leafTable {
			continue
		}
		end := min(int64(at)+local, int64(len(page)))
		if name, ok := textColumn(page[min(at, len(page)):end], m.part); ok {
			s := m.parts[name]
			m.parts[name] = sample{s.rows + 1, s.bytes + size}
		}
	}
	return overflow
}

// local returns how many bytes of a payload are in its cell; see https://sqlite.org/fileformat.html.
func (w *walk) local(payload int64, table bool) int64 {
	most := w.usable - 35
	if !table {
		most = (w.usable-12)*64/255 - 23
	}
	if payload <= most {
		return payload
	}
	least := (w.usable-12)*32/255 - 23
	if k := least + (payload-least)%(w.usable-4); k <= most {
		return k
	}
	return least
}

// varint returns the number at an offset, and the offset after it. Beyond the end of the page it returns 0.
func varint(page []byte, at int) (n int64, next int) {
	for i := range 9 {
		if at+i >= len(page) {
			return 0, len(page)
		}
		b := page[at+i]
		if i == 8 {
			return n<<8 | int64(b), at + 9
		}
		if n = n<<7 | int64(b&0x7f); b < 0x80 {
			return n, at + i + 1
		}
	}
	return n, at
}

// textColumn returns a column of a record if it is a text that is not in an overflow page.
func textColumn(record []byte, column int) (text string, ok bool) {
	header, at := varint(record, 0)
	if header < 0 || header > int64(len(record)) {
		return "", false
	}
	value := header
	for i := 0; int64(at) < header && at < len(record); i++ {
		var serial int64
		serial, at = varint(record, at)
		size := sizeOf(serial)
		if i < column {
			value += size
			continue
		}
		if serial < 13 || serial%2 == 0 || value+size > int64(len(record)) {
			return "", false
		}
		return string(record[value : value+size]), true
	}
	return "", false
}

// sizeOf returns the size of a value by its serial type.
func sizeOf(serial int64) int64 {
	switch {
	case serial >= 12:
		return (serial - 12) / 2
	case serial < 0:
		return 0
	}
	return []int64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0}[serial]
}

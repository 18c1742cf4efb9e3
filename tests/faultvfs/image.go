//go:build unix

package faultvfs

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Image is a Disk at one moment: what was durable, and what was on its way.
type Image struct {
	files map[string]file
}

func (d *Disk) image() Image {
	m := Image{files: map[string]file{}}
	for path, f := range d.files {
		m.files[path] = f.frozen()
	}
	return m
}

func (f *file) frozen() file {
	c := *f
	c.durable = slices.Clone(f.durable) // changed in place
	c.pending = slices.Clip(f.pending)  // only ever appended to, and let go
	if g := f.ghost; g != nil {
		frozen := g.frozen()
		c.ghost = &frozen
	}
	return c
}

const sector = 512

// Write puts into dir one of the many images that a cut at that moment could have
// left. Each file has its own luck, since nothing orders the writes of two files but a
// sync; so has a file that the directory may not know of yet, or still.
func (m Image) Write(dir string, luck *rand.Rand) error {
	for _, path := range slices.Sorted(maps.Keys(m.files)) {
		f := m.files[path]
		b, exists := f.left(luck)
		if !exists {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (f file) left(luck *rand.Rand) (b []byte, exists bool) {
	switch {
	case f.exists && (f.entry || luck.IntN(2) == 0):
		return f.survivors(luck), true
	case f.exists && f.ghost != nil && luck.IntN(2) == 0:
		return f.ghost.survivors(luck), true
	case !f.exists && f.entry && luck.IntN(2) == 0: // deleted, but not durably
		return f.survivors(luck), true
	}
	return nil, false
}

// survivors is one of the ways in which unsynced changes are lost.
func (f file) survivors(luck *rand.Rand) []byte {
	b := slices.Clone(f.durable)
	switch luck.IntN(5) {
	case 0: // none survives
	case 1: // all do
		for _, r := range f.pending {
			b = r.apply(b)
		}
	case 2: // the first ones, and of the next some sectors
		n := luck.IntN(len(f.pending) + 1)
		for _, r := range f.pending[:n] {
			b = r.apply(b)
		}
		if n < len(f.pending) {
			b = f.pending[n].torn(luck).apply(b)
		}
	case 3: // any of them
		for _, r := range f.pending {
			if luck.IntN(2) == 0 {
				b = r.apply(b)
			}
		}
	case 4: // any of them, some damaged
		for _, r := range f.pending {
			if luck.IntN(4) > 0 {
				b = r.damaged(luck).apply(b)
			}
		}
	}
	return b
}

func (r record) torn(luck *rand.Rand) record {
	if !r.truncate {
		r.data = r.data[:min(len(r.data), sector*luck.IntN(len(r.data)/sector+1))]
	}
	return r
}

// damaged has noise in one sector, once in a while: the disk was writing it.
func (r record) damaged(luck *rand.Rand) record {
	if r.truncate || len(r.data) == 0 || luck.IntN(4) > 0 {
		return r
	}
	r.data = slices.Clone(r.data)
	from := luck.IntN(len(r.data)) / sector * sector
	for i := from; i < min(from+sector, len(r.data)); i++ {
		r.data[i] = byte(luck.Uint32())
	}
	return r
}

// Contents is what programs see in the file at path now, synced or not.
func (d *Disk) Contents(path string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.at(path)
	b := slices.Clone(f.durable)
	for _, r := range f.pending {
		b = r.apply(b)
	}
	return b
}

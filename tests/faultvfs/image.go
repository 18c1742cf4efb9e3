//go:build unix

package faultvfs

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Image is the state of a Disk at one moment: the synced contents of its files and the changes not
// synced yet.
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
	c.durable = slices.Clone(f.durable) // modified in place
	c.pending = slices.Clip(f.pending)  // only appended to or replaced
	if g := f.ghost; g != nil {
		frozen := g.frozen()
		c.ghost = &frozen
	}
	return c
}

const sector = 512

// Write writes to dir a random state that a power cut at the moment of m could have left. The files
// are decided independently, because only a sync orders writes to different files. The same is true
// of the creations and deletions that the directory has not synced.
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

// left decides whether the file, or an earlier file of its name, exists after the power cut, and
// with which contents.
func (f file) left(luck *rand.Rand) (b []byte, exists bool) {
	switch {
	case f.exists && (f.entry || luck.IntN(2) == 0):
		return f.survivors(luck), true
	case f.exists && f.ghost != nil && luck.IntN(2) == 0:
		return f.ghost.survivors(luck), true
	case !f.exists && f.entry && luck.IntN(2) == 0: // deleted, but the directory is not synced
		return f.survivors(luck), true
	}
	return nil, false
}

// survivors returns the contents after a random loss of unsynced changes.
func (f file) survivors(luck *rand.Rand) []byte {
	b := slices.Clone(f.durable)
	switch luck.IntN(5) {
	case 0: // all are lost
	case 1: // all survive
		for _, r := range f.pending {
			b = r.apply(b)
		}
	case 2: // a prefix survives, and some sectors of the next change
		n := luck.IntN(len(f.pending) + 1)
		for _, r := range f.pending[:n] {
			b = r.apply(b)
		}
		if n < len(f.pending) {
			b = f.pending[n].torn(luck).apply(b)
		}
	case 3: // a random subset survives
		for _, r := range f.pending {
			if luck.IntN(2) == 0 {
				b = r.apply(b)
			}
		}
	case 4: // a random subset survives, partly damaged
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

// damaged returns r, sometimes with one sector of noise as if the disk was writing it during the
// power cut.
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

// Contents returns the current contents of the file at path, including unsynced changes.
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

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// bank stands for a service outside of the database. It appends each charge and each refund to a file, and recognizes a
// charge that is repeated with the same key.
type bank struct {
	path string
	mu   sync.Mutex
}

// charge charges an amount once for each key, and returns the number of the charge.
func (b *bank) charge(key string, amount int) (string, error) {
	return key, b.once(fmt.Sprintf("charge %s %d", key, amount))
}

// refund refunds a charge once.
func (b *bank) refund(charge string) error { return b.once("refund " + charge) }

// once appends a line to the file, unless it is there already.
func (b *bank) once(line string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines, err := b.lines()
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l == line {
			return nil
		}
	}
	f, err := os.OpenFile(b.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// lines returns the lines of the file.
func (b *bank) lines() (lines []string, err error) {
	text, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for s := bufio.NewScanner(strings.NewReader(string(text))); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines, err
}

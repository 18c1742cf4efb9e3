package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// render writes the tables and charts next to the results file.
func render(r *Results, path string) error {
	charts, err := r.writeCharts(filepath.Dir(path))
	if err != nil {
		return err
	}
	f, err := os.Create(strings.TrimSuffix(path, filepath.Ext(path)) + ".md")
	if err != nil {
		return err
	}
	return errors.Join(r.writeMarkdown(f, charts), f.Close())
}

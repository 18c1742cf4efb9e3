package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// sized is a table, or the events of a topic or jobs of a queue, with the space that it takes.
type sized struct {
	Kind  string // "table", "topic" or "queue"
	Name  string
	State string // of jobs
	Rows  int64
	Bytes int64
	Do    string // command that frees space
}

var sizedView = view[sized]{
	columns: []column[sized]{
		{"kind", func(s sized) cell { return text(s.Kind) }},
		{"name", func(s sized) cell { return text(s.Name) }},
		{"state", func(s sized) cell { return dashed(s.State) }},
		{"rows", func(s sized) cell { return number(s.Rows) }},
		{"bytes", func(s sized) cell { return bytesCell(s.Bytes) }},
		{"do", func(s sized) cell { return dashed(s.Do) }},
	},
	name: func(s sized) string { return s.Name },
}

const (
	// listedParts limits the topics and queues that are listed.
	listedParts = 10
	// muchFree is the number of bytes in free pages from which vacuum is suggested.
	muchFree = 16 << 20
	// largeFile is the size of a file from which status and doctor tell it.
	largeFile = 256 << 20
)

func (a *app) sizes() *cobra.Command {
	cmd := &cobra.Command{
		Use:        "sizes",
		SuggestFor: []string{"file", "size", "du", "space"},
		Short:      "Show where the bytes of the database are, and what would free them",
		Long: `sizes lists the tables, the largest topics and the largest queues with the space that they take, with indexes. The numbers are
estimates from a sample of pages, so the command is quick for a large file. The last column has a command that frees space. On a
server the sizes of tables are exact.`,
		GroupID: groupFile,
		Args:    cobra.NoArgs,
	}
	a.prints(cmd, sizedView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		return a.look(ctx, func(db *honker.DB) error {
			info, err := admin.Sizes(ctx, db)
			if err != nil {
				return err
			}
			if err := many(a, sizedView, a.sizedOf(info), "tables"); err != nil {
				return err
			}
			if admin.IsFile(db) {
				return a.noteFile(ctx, db)
			}
			return nil
		})
	})
}

// sizedOf lists the tables with rows, and the largest topics and queues.
func (a *app) sizedOf(info *admin.SizeInfo) (all []sized) {
	for _, t := range info.Tables {
		if t.Rows > 0 {
			all = append(all, sized{Kind: "table", Name: t.Name, Rows: t.Rows, Bytes: t.Bytes + t.Indexes})
		}
	}
	if info.Other > 0 {
		all = append(all, sized{Kind: "table", Name: "(others)", Bytes: info.Other})
	}
	for _, p := range info.Topics[:min(len(info.Topics), listedParts)] {
		all = append(all, sized{Kind: "topic", Name: p.Name, Rows: p.Rows, Bytes: p.Bytes,
			Do: a.bounding(admin.Action{Topic: p.Name})})
	}
	for _, p := range info.Queues[:min(len(info.Queues), listedParts)] {
		s := sized{Kind: "queue", Name: p.Name, State: string(p.State), Rows: p.Rows, Bytes: p.Bytes}
		switch p.State {
		case honker.StateDead:
			s.Do = a.bounding(admin.Action{Queue: p.Name, Phase: honker.PhaseDead})
		case honker.StateDone:
			s.Do = a.bounding(admin.Action{Queue: p.Name, Phase: honker.PhaseDone})
		default:
			s.State = "live"
		}
		all = append(all, s)
	}
	return all
}

// bounding returns a dry run of the command that bounds a topic or queue.
func (a *app) bounding(do admin.Action) string {
	do.Verb = admin.ActionSetRetention
	return a.command(append(commandWords(do), "--dry-run")...)
}

// noteFile tells the free space in and around the file.
func (a *app) noteFile(ctx context.Context, db *honker.DB) error {
	f, err := admin.File(ctx, db)
	if err == nil {
		a.noteSize(f)
	}
	return err
}

func (a *app) noteSize(f *admin.FileInfo) {
	line := fmt.Sprintf("the file has %s, and its log %s", admin.FormatSize(f.Size), admin.FormatSize(f.WAL))
	if f.DiskFree >= 0 {
		line += fmt.Sprintf("; %s of the disk are free", admin.FormatSize(f.DiskFree))
	}
	a.note("%s", line)
	if free := f.FreePages * f.PageSize; free >= muchFree {
		a.note("%s are free pages, which new rows use. To return them to the disk, with as much disk as the rest for a while: %s",
			admin.FormatSize(free), a.command("vacuum"))
	}
}

// noteLarge tells the size of a large file, and how to see its parts.
func (a *app) noteLarge(ctx context.Context, db *honker.DB) error {
	if !a.sentences() || !admin.IsFile(db) {
		return nil
	}
	f, err := admin.File(ctx, db)
	if err == nil && f.Size >= largeFile {
		a.noteSize(f)
		a.note("to see where the bytes are: %s", a.command("sizes"))
	}
	return err
}

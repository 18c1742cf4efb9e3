package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// upgraded reports the schema version of a file before and after the upgrade.
type upgraded struct {
	File    string
	From    int // 0 if created by another honker binding
	To      int
	DryRun  bool
	Changed bool
}

var upgradedView = view[upgraded]{columns: []column[upgraded]{
	{"file", func(u upgraded) cell { return text(u.File) }},
	{"from", func(u upgraded) cell { return version(u.From) }},
	{"to", func(u upgraded) cell { return version(u.To) }},
	{"dry_run", func(u upgraded) cell { return truth(u.DryRun) }},
	{"changed", func(u upgraded) cell { return truth(u.Changed) }},
}}

func version(n int) cell {
	if n == 0 {
		return cell{human: "another binding's", raw: "0"}
	}
	return text(strconv.Itoa(n))
}

func (a *app) upgrade() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:        "upgrade",
		SuggestFor: []string{"update", "migrate"},
		Short:      "Upgrade the schema of an older file",
		Long: `upgrade changes the schema of a file to that of this version. The file may be of an older version or of another binding of
honker. upgrade asks first. It only adds to the schema, in a single transaction, and the file may be in use. Afterwards,
programs with an older version of this library refuse to open the file. Other bindings use it as before. A program with this
version of the library also upgrades a file when it opens it.`,
		Example: `  honker upgrade -f app.db --dry-run
  honker upgrade -f app.db --yes`,
		GroupID: groupFile,
		Args:    cobra.NoArgs,
	}
	c.addTo(cmd)
	a.prints(cmd, upgradedView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		path, err := a.path(ctx)
		if err != nil {
			return err
		}
		u, err := a.schemaOf(ctx, path)
		if err != nil {
			return err
		}
		u.DryRun = c.dryRun
		if u.From < u.To && !c.dryRun {
			err = a.upgradeFile(ctx, &u, c.yes)
		}
		if err != nil {
			return err
		}
		if err := one(a, upgradedView, u); err != nil || !c.dryRun || u.From == u.To {
			return err
		}
		return &coded{code: codeWouldChange}
	})
}

// schemaOf returns the current schema version of the file, and the version it can be upgraded to.
func (a *app) schemaOf(ctx context.Context, path string) (upgraded, error) {
	u := upgraded{File: path}
	err := a.with(ctx, path, access{readOnly: true}, func(db *honker.DB) error {
		info, err := admin.File(ctx, db)
		if err == nil {
			u.From, u.To = info.Schema, info.Schema
		}
		return err
	})
	var old *honker.OldSchemaError
	if errors.As(err, &old) {
		u.From, u.To = old.Version, old.Current
		return u, nil
	}
	return u, err
}

func (a *app) upgradeFile(ctx context.Context, u *upgraded, yes bool) error {
	if !yes {
		question := fmt.Sprintf("bring %s from version %d to %d? Programs with an older version of this library refuse it then.", clean(u.File), u.From, u.To)
		if u.From == 0 {
			question = fmt.Sprintf("add the tables of this library, version %d, to %s?", u.To, clean(u.File))
		}
		if err := a.confirm(ctx, question); err != nil {
			return err
		}
	}
	if err := a.try(ctx, u.File, access{}); err != nil {
		return err
	}
	u.Changed = true
	return nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// upgraded reports the schema version of a database before and after the upgrade.
type upgraded struct {
	File    string // "" for a server
	From    int    // 0 if it lacks the tables of this library
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
		return cell{human: "none", raw: "0"}
	}
	return text(strconv.Itoa(n))
}

func (a *app) upgrade() *cobra.Command {
	var c changing
	cmd := &cobra.Command{
		Use:        "upgrade",
		SuggestFor: []string{"update", "migrate"},
		Short:      "Upgrade an older file or schema, or make the schema",
		Long: `upgrade changes the schema of a database to that of this version. A file may be of an older version or of another binding of
honker. On a server, upgrade makes the schema if there is none. upgrade asks first. It only adds to the schema, in a single
transaction, and the database may be in use. Afterwards, programs with an older version of this library refuse to open the
file. Other bindings use it as before. A program with this version of the library also upgrades a database when it opens it,
unless it is told not to.`,
		Example: `  honker upgrade -f app.db --dry-run
  honker upgrade -d "$ADMIN_DSN" --yes`,
		GroupID: groupFile,
		Args:    cobra.NoArgs,
	}
	c.addTo(cmd)
	a.prints(cmd, upgradedView)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		d, err := a.database(ctx)
		if err != nil {
			return err
		}
		u, err := a.schemaOf(ctx, d)
		if err != nil {
			return err
		}
		u.DryRun = c.dryRun
		if u.From < u.To && !c.dryRun {
			err = a.upgradeSchema(ctx, d, &u, c.yes)
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

// schemaOf returns the current schema version of the database, and the version it can be upgraded to.
func (a *app) schemaOf(ctx context.Context, d database) (upgraded, error) {
	u := upgraded{File: d.path}
	err := a.with(ctx, d, access{readOnly: true}, func(db *honker.DB) (err error) {
		u.From, err = schemaVersion(ctx, db)
		u.To = u.From
		return err
	})
	var old *honker.OldSchemaError
	if errors.As(err, &old) {
		u.From, u.To = old.Version, old.Current
		return u, nil
	}
	return u, err
}

func schemaVersion(ctx context.Context, db *honker.DB) (int, error) {
	if !admin.IsFile(db) {
		info, err := admin.Database(ctx, db)
		if err != nil {
			return 0, err
		}
		return info.SchemaVersion, nil
	}
	info, err := admin.File(ctx, db)
	if err != nil {
		return 0, err
	}
	return info.Schema, nil
}

func (a *app) upgradeSchema(ctx context.Context, d database, u *upgraded, yes bool) error {
	if !yes {
		name := cmp.Or(clean(u.File), "the schema "+cmp.Or(a.schemaName(), "honker"))
		question := fmt.Sprintf("bring %s from version %d to %d? Programs with an older version of this library refuse it then.", name, u.From, u.To)
		if u.From == 0 {
			question = fmt.Sprintf("add the tables of this library, version %d, to %s?", u.To, name)
		}
		if err := a.confirm(ctx, question); err != nil {
			return err
		}
	}
	if err := a.try(ctx, d, access{upgrades: true}); err != nil {
		return err
	}
	u.Changed = true
	return nil
}

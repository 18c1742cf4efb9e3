package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// columnNames implements pflag.Value for --columns.
type columnNames struct {
	known  []string // columns that the command can print
	chosen *[]string
}

// String implements pflag.Value.
func (c columnNames) String() string { return "" }

// Type implements pflag.Value.
func (c columnNames) Type() string { return "names" }

// Set implements pflag.Value. It rejects unknown names before the command starts, because the command may change the
// file.
func (c columnNames) Set(text string) error {
	names := strings.Split(text, ",")
	if _, err := placesOf(names, c.known); err != nil {
		return err
	}
	*c.chosen = append(*c.chosen, names...)
	return nil
}

// complete suggests columns that aren't in the list yet. Each suggestion includes the list typed so far.
func (c columnNames) complete(_ *cobra.Command, _ []string, begun string) (offers []string, _ cobra.ShellCompDirective) {
	given := begun[:strings.LastIndex(begun, ",")+1]
	for _, name := range c.known {
		if !slices.Contains(strings.Split(given, ","), name) {
			offers = append(offers, given+name)
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
}

// placesOf returns the indexes of names in header.
func placesOf(names, header []string) ([]int, error) {
	places := make([]int, len(names))
	for i, name := range names {
		if places[i] = slices.Index(header, name); places[i] < 0 {
			return nil, fmt.Errorf("unknown column %q: the columns are %s", name, strings.Join(header, ", "))
		}
	}
	return places, nil
}

// headed is implemented by views of any type.
type headed interface{ header() []string }

// prints adds the flag --columns to cmd, accepting the columns of the given tables.
func (a *app) prints(cmd *cobra.Command, tables ...headed) {
	names := columnNames{chosen: &a.columns}
	for _, table := range tables {
		for _, name := range table.header() {
			if !slices.Contains(names.known, name) {
				names.known = append(names.known, name)
			}
		}
	}
	cmd.Flags().Var(names, "columns", "print only these columns of a table or tsv, in this order: "+strings.Join(names.known, ", "))
	must(cmd.RegisterFlagCompletionFunc("columns", names.complete))
}

// checkColumns rejects --columns for formats without columns.
func (a *app) checkColumns() error {
	if shown := a.shown(); a.columns != nil && shown != formatTable && shown != formatTSV {
		return fmt.Errorf("--columns requires -o table or -o tsv: -o %s has no columns", shown)
	}
	return nil
}

// sentences reports whether results are printed as sentences rather than values. --columns asks for values.
func (a *app) sentences() bool { return a.shown() == formatTable && a.columns == nil }

// chosenOf returns the indexes in v of the columns named by --columns. It fails if v lacks a column, which can happen
// because a command may have several tables to choose from, and --columns accepts the columns of all of them.
func (a *app) chosenOf(v headed) ([]int, error) {
	places, err := placesOf(a.columns, v.header())
	if err != nil {
		return nil, usage("", "--columns: %w", err)
	}
	return places, nil
}

// picked returns v with only the columns named by --columns.
func picked[T any](a *app, v view[T]) (view[T], error) {
	if a.columns == nil {
		return v, nil
	}
	places, err := a.chosenOf(v)
	all := v.columns
	v.columns = make([]column[T], len(places))
	for i, place := range places {
		v.columns[i] = all[place]
	}
	return v, err
}

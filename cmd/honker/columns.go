package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// columnNames is the value of --columns.
type columnNames struct {
	known  []string // all that the command may be asked for
	chosen *[]string
}

// String implements pflag.Value.
func (c columnNames) String() string { return "" }

// Type implements pflag.Value.
func (c columnNames) Type() string { return "names" }

// Set implements pflag.Value. It refuses a name before the command begins, which may change the file.
func (c columnNames) Set(text string) error {
	names := strings.Split(text, ",")
	if _, err := placesOf(names, c.known); err != nil {
		return err
	}
	*c.chosen = append(*c.chosen, names...)
	return nil
}

// complete offers the names that are not in the list yet, each with the list before it.
func (c columnNames) complete(_ *cobra.Command, _ []string, begun string) (offers []string, _ cobra.ShellCompDirective) {
	given := begun[:strings.LastIndex(begun, ",")+1]
	for _, name := range c.known {
		if !slices.Contains(strings.Split(given, ","), name) {
			offers = append(offers, given+name)
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
}

// placesOf are the places of names in a header.
func placesOf(names, header []string) ([]int, error) {
	places := make([]int, len(names))
	for i, name := range names {
		if places[i] = slices.Index(header, name); places[i] < 0 {
			return nil, fmt.Errorf("there is no column %q: there are %s", name, strings.Join(header, ", "))
		}
	}
	return places, nil
}

// headed is a view of any type.
type headed interface{ header() []string }

// prints gives cmd the flag --columns, for the columns of its tables.
func (a *app) prints(cmd *cobra.Command, tables ...headed) {
	names := columnNames{chosen: &a.columns}
	for _, table := range tables {
		for _, name := range table.header() {
			if !slices.Contains(names.known, name) {
				names.known = append(names.known, name)
			}
		}
	}
	cmd.Flags().Var(names, "columns", "of a table or tsv only these, in this order: "+strings.Join(names.known, ", "))
	must(cmd.RegisterFlagCompletionFunc("columns", names.complete))
}

// checkColumns refuses --columns where the output has none.
func (a *app) checkColumns() error {
	if shown := a.shown(); a.columns != nil && shown != formatTable && shown != formatTSV {
		return fmt.Errorf("--columns is for -o table and -o tsv: -o %s has none", shown)
	}
	return nil
}

// sentences reports whether people are told in sentences what others get as values. --columns asks for values.
func (a *app) sentences() bool { return a.shown() == formatTable && a.columns == nil }

// chosenOf are the places of the columns of --columns in v. A command may print one of several tables, of which v may have
// others than those that were named.
func (a *app) chosenOf(v headed) ([]int, error) {
	places, err := placesOf(a.columns, v.header())
	if err != nil {
		return nil, usage("", "--columns: %w", err)
	}
	return places, nil
}

// picked is v with the columns of --columns only.
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

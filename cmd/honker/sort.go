package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker/admin"
)

// sortNames are the orders of lists that have pages. Each is that of an index: nothing is sorted here.
var sortNames = [...]string{admin.NewestFirst: "newest", admin.OldestFirst: "oldest", admin.ClaimOrder: "claim", admin.LastDiedFirst: "died"}

// sortFlag is the value of --sort.
type sortFlag struct {
	order *admin.Order
	of    []admin.Order // those of the list
}

// String implements pflag.Value.
func (f sortFlag) String() string {
	if f.order == nil {
		return ""
	}
	return sortNames[*f.order]
}

// Type implements pflag.Value.
func (f sortFlag) Type() string { return "order" }

// Set implements pflag.Value.
func (f sortFlag) Set(name string) error {
	order := admin.Order(slices.Index(sortNames[:], name))
	if !slices.Contains(f.of, order) {
		return fmt.Errorf("one of %s", strings.Join(f.names(), ", "))
	}
	*f.order = order
	return nil
}

func (f sortFlag) names() []string {
	names := make([]string, len(f.of))
	for i, order := range f.of {
		names[i] = sortNames[order]
	}
	return names
}

// addSort gives cmd the flag --sort, for the orders of its list: the first is that without the flag.
func addSort(cmd *cobra.Command, order *admin.Order, of ...admin.Order) {
	*order = of[0]
	f := sortFlag{order: order, of: of}
	help := "`order`: " + strings.Join(f.names(), ", ")
	if slices.Contains(of, admin.ClaimOrder) {
		help += "; claim is the order in which those of one --queue that wait are claimed, died has dead ones, the last that died first"
	}
	cmd.Flags().Var(f, "sort", help)
	must(cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(f.names(), cobra.ShellCompDirectiveNoFileComp)))
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker/admin"
)

// sortNames are the values of --sort. Each order matches an index, so nothing is sorted in memory.
var sortNames = [...]string{admin.NewestFirst: "newest", admin.OldestFirst: "oldest", admin.ClaimOrder: "claim", admin.LastDiedFirst: "died"}

// sortFlag implements pflag.Value for --sort.
type sortFlag struct {
	order *admin.Order
	of    []admin.Order // orders supported by the list
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
		return fmt.Errorf("must be one of %s", strings.Join(f.names(), ", "))
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

// addSort adds the flag --sort to cmd with the given orders. The first order is the default.
func addSort(cmd *cobra.Command, order *admin.Order, of ...admin.Order) {
	*order = of[0]
	f := sortFlag{order: order, of: of}
	help := "`order`: " + strings.Join(f.names(), ", ")
	if slices.Contains(of, admin.ClaimOrder) {
		help += "; claim lists the waiting jobs of one --queue in the order of their claims, died lists dead jobs, latest first"
	}
	cmd.Flags().Var(f, "sort", help)
	must(cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(f.names(), cobra.ShellCompDirectiveNoFileComp)))
}

//go:build unix

// Command cmd runs the tests that try to break honker's promises for as long as one
// likes, and exits with 1 when one was broken:
//
//	go run ./torture/cmd -for 10m -seed 1 -report out.json
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/honker-go/honker/tests/torture"
)

func main() {
	torture.Main() // this process may be one of those that the suites kill
	os.Exit(run(os.Args[1:]))
}

// run returns the exit code.
func run(args []string) int {
	flags := flag.NewFlagSet("torture", flag.ExitOnError)
	var o torture.Options
	flags.DurationVar(&o.For, "for", 10*time.Minute, "how long, all suites together")
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "repeat a run")
	flags.StringVar(&o.Dir, "dir", "", "where the files lie, and stay when a promise was broken; default memory")
	only := flags.String("only", "", "suites, with commas; default all")
	path := flags.String("report", "", "where the report goes; default stdout")
	quiet := flags.Bool("quiet", false, "do not show counters")
	_ = flags.Parse(args)
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	if !*quiet {
		o.Live = os.Stderr
	}
	return runSuites(o, *path)
}

func runSuites(o torture.Options, path string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := torture.All(ctx, o)
	if err == nil {
		err = write(report, path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		return 2
	}
	for _, s := range report.Suites {
		if s.Violation != "" && o.Live == nil { // else it was said when it was found
			fmt.Fprintln(os.Stderr, "VIOLATION", s.Violation)
		}
	}
	return min(report.Failed, 1)
}

func write(report *torture.Report, path string) error {
	if path == "" {
		return report.Write(os.Stdout)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := report.Write(f); err != nil {
		return err
	}
	return f.Close()
}

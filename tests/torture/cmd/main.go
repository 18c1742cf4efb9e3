//go:build unix

// Command cmd runs the torture suites for a given time. It exits with status 1 if a guarantee was
// violated:
//
//	go run ./torture/cmd -for 10m -seed 1 -report out.json
//
// With the tag honkerpg, in the workspace postgres.work, the suites of killed processes run on a
// PostgreSQL server that the command starts and crashes:
//
//	GOWORK=$PWD/postgres.work go run -tags honkerpg ./torture/cmd -for 10m -report out.json
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
	torture.Main() // this process may be a child of a suite
	os.Exit(run(os.Args[1:]))
}

// run returns the exit status.
func run(args []string) int {
	flags := flag.NewFlagSet("torture", flag.ExitOnError)
	var o torture.Options
	flags.DurationVar(&o.For, "for", 10*time.Minute, "total duration of all suites")
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "seed of the run, to repeat it")
	flags.StringVar(&o.Dir, "dir", "", "directory for the files, which are kept after a violation; default in memory")
	only := flags.String("only", "", "comma-separated names of suites; default all")
	path := flags.String("report", "", "file for the report; default stdout")
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
		if s.Violation != "" && o.Live == nil { // otherwise it was printed when it was found
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

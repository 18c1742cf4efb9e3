// Command honker is for operators of files that honker keeps.
//
//	honker torture -for 10m -seed 1 -report out.json
//
// runs the tests that try to break honker's promises for as long as you like, and exits
// with 1 when one was broken.
package main

import (
	"fmt"
	"os"
)

// commands by name. Each returns the exit code.
var commands = map[string]func(args []string) int{}

func main() {
	before()
	if len(os.Args) > 1 {
		if run := commands[os.Args[1]]; run != nil {
			os.Exit(run(os.Args[2:]))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: honker torture [-for 10m] [-seed n] [-only suite,suite] [-dir dir] [-report out.json]")
	os.Exit(2)
}

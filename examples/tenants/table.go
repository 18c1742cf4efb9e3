package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

// check is a condition that must hold in a scenario, with the actual result.
type check struct {
	scenario, must, found string
	ok                    bool
}

// printChecks prints the table and returns an error if a check has failed.
func printChecks(w io.Writer, all []check) (err error) {
	fmt.Fprintf(w, "\n%-46s %s\n", "check", "found")
	for _, c := range all {
		verdict := "ok"
		if !c.ok {
			verdict = "FAILED"
			err = errors.Join(err, fmt.Errorf("scenario %s: %s, but: %s", c.scenario, c.must, c.found))
		}
		fmt.Fprintf(w, "%-46s %-58s %s\n", c.must, c.found, verdict)
	}
	return err
}

// printKeys prints a line with each customer's job counts.
func (sc *scenario) printKeys(keys []honker.KeyStats) {
	var parts []string
	for _, tenant := range tenants {
		for _, k := range keys {
			if k.Key == tenant {
				parts = append(parts, sc.describe(k))
			}
		}
	}
	if len(parts) > 0 {
		sc.say("   %.1fs  %s", time.Since(sc.began).Seconds(), strings.Join(parts, " | "))
	}
}

// describe formats a key's job counts. Held jobs are waiting for a limit, and waiting jobs for a
// claim or for their time.
func (sc *scenario) describe(k honker.KeyStats) string {
	text := fmt.Sprintf("%s: %d run, %d held, %d wait, %d done", k.Key, k.Running, k.Held, k.Waiting, sc.endpoints.of[k.Key].done())
	if k.Pause != nil {
		text += ", paused: " + k.Pause.Reason
	}
	return text
}

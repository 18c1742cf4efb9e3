package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// suites returns all suites in the order in which they run.
func suites() []Suite {
	return []Suite{enqueueSuite(), workSuite(), pullSuite(), wakeSuite(), flatSuite(), idleSuite(), streamSuite(), contentionSuite(), crowdSuite(), neighboursSuite(), relaySuite(), poolSuite(), lanesSuite(), dispatchSuite(), flowSuite(), postgresSuite(), postgresStreamSuite()}
}

// only removes cases whose names do not contain text, and suites without cases.
func only(all []Suite, text string) []Suite {
	for i := range all {
		all[i].Cases = slices.DeleteFunc(all[i].Cases, func(c Case) bool { return !strings.Contains(c.Name, text) })
	}
	return slices.DeleteFunc(all, func(s Suite) bool { return len(s.Cases) == 0 })
}

func rate(unit string) []Metric { return []Metric{{"rate", unit, true}} }

// as returns q as a T, or an error with the reason why there is no number.
func as[T any](q Queue, lacks string) (T, error) {
	v, ok := q.(T)
	if !ok {
		return v, fmt.Errorf("%w: %s", errNA, lacks)
	}
	return v, nil
}

// background runs f until stop is called. stop returns the error of f.
func background(ctx context.Context, f func(ctx context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() error {
		cancel()
		err := <-done
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
}

// pace calls f at a fixed rate until ctx is done. Calls that are late are dropped.
func pace(ctx context.Context, perSecond int, f func(n int64) error) error {
	every := time.NewTicker(time.Second / time.Duration(perSecond))
	defer every.Stop()
	for n := int64(0); ctx.Err() == nil; n++ {
		if err := f(n); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-every.C:
		}
	}
	return nil
}

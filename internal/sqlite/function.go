package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"modernc.org/sqlite"
)

// Function is an SQL function that can run statements on the connection that calls it. Functions
// with the same name must differ in Args.
type Function struct {
	Name   string
	Args   int
	Effect Effect
	Run    func(ctx context.Context, q row.Querier, now time.Time, args []driver.Value) (driver.Value, error)
}

// Effect classifies the side effects of a function.
type Effect int

const (
	Pure       Effect = iota // neither reads nor writes: equal arguments give equal results
	Reads                    // reads the database
	WritesOnce               // writes with a single statement, which SQLite undoes by itself
	Writes                   // writes with several statements; if one fails, all are undone
)

func (f *Function) writes() bool { return f.Effect >= WritesOnce }

// safely turns a panic into an error, because a panic must not unwind through SQLite.
func (f *Function) safely(q row.Querier, args []driver.Value) (v driver.Value, err error) {
	defer func() {
		if p := panicError(recover()); p != nil {
			err = p
		}
	}()
	return f.Run(context.Background(), q, time.Now(), args)
}

// Functions is a table of SQL functions. Create a single table per process and share it, because
// the driver never releases registered functions.
type Functions struct {
	byName  map[string][]*Function
	writers *regexp.Regexp

	mu   sync.Mutex
	free []*connDriver
}

// NewFunctions returns a table of the given functions.
func NewFunctions(all []Function) *Functions {
	t := &Functions{byName: make(map[string][]*Function), writers: writers(all)}
	for i := range all {
		name := all[i].Name
		t.byName[name] = append(t.byName[name], &all[i])
	}
	return t
}

var noFunctions = NewFunctions(nil)

// writers returns a pattern that matches statements that call a function that writes, or nil if no
// function writes. A false match only costs speed. A call that the pattern misses, for example in a
// view, is detected when the function runs; see errHiddenCall.
func writers(all []Function) *regexp.Regexp {
	names := []string{}
	for _, f := range all {
		if f.writes() {
			names = append(names, regexp.QuoteMeta(f.Name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(names, "|") + `)["\]` + "`" + `]?\s*\(`)
}

// writtenBy reports whether query calls a function that writes.
func (t *Functions) writtenBy(query string) bool {
	return t.writers != nil && t.writers.MatchString(query)
}

// connDriver is a driver for a single connection. It exists because the driver doesn't tell a function which
// connection called it. Later connections reuse connDrivers, so there are never more of them than there were
// connections open at the same time.
type connDriver struct {
	functions *Functions
	driver    *sqlite.Driver
	conn      *conn
}

// take returns a driver that is not in use.
func (t *Functions) take() (*connDriver, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		d := t.free[n-1]
		t.free = t.free[:n-1]
		return d, nil
	}
	return t.newDriver()
}

func (d *connDriver) giveBack() {
	d.functions.mu.Lock()
	defer d.functions.mu.Unlock()
	d.conn = nil
	d.functions.free = append(d.functions.free, d)
}

func (t *Functions) newDriver() (*connDriver, error) {
	d := &connDriver{functions: t, driver: new(sqlite.Driver)}
	for name, forms := range t.byName {
		args := forms[0].Args
		if len(forms) > 1 {
			args = -1 // the driver accepts a name only once
		}
		err := d.driver.RegisterFunction(name, &sqlite.FunctionImpl{
			NArgs:         int32(args),
			Deterministic: forms[0].Effect == Pure,
			VolatileArgs:  true, // otherwise a text argument would end at its first NUL
			Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
				return d.call(forms, args)
			},
		})
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// call runs the form of the function that takes this number of arguments.
func (d *connDriver) call(forms []*Function, args []driver.Value) (driver.Value, error) {
	if d.conn == nil {
		return nil, fmt.Errorf("%s: %w: the connection is not open yet", forms[0].Name, engine.ErrInvalid)
	}
	for _, f := range forms {
		if f.Args == len(args) {
			return d.conn.call(f, cloned(args))
		}
	}
	return nil, fmt.Errorf("wrong number of arguments to function %s()", forms[0].Name)
}

// cloned copies arguments out of SQLite's memory, which is reused after the call.
func cloned(args []driver.Value) []driver.Value {
	out := make([]driver.Value, len(args))
	for i, v := range args {
		switch v := v.(type) {
		case string:
			out[i] = strings.Clone(v)
		case []byte:
			out[i] = append([]byte{}, v...)
		default:
			out[i] = v
		}
	}
	return out
}

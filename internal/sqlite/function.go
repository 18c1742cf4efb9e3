package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// Function is a SQL function that runs statements on the connection that calls it.
// Two of a name differ in Args.
type Function struct {
	Name   string
	Args   int
	Effect Effect
	Run    func(ctx context.Context, q Querier, now time.Time, args []driver.Value) (driver.Value, error)
}

// Effect is what a function does to the file.
type Effect int

const (
	Pure       Effect = iota // nothing, and looks at nothing: equal arguments, equal result
	Reads                    // looks
	WritesOnce               // changes it by one statement, which SQLite undoes by itself
	Writes                   // changes it by several, of which none stays when one fails
)

func (f *Function) writes() bool { return f.Effect >= WritesOnce }

// safely makes an error of a panic, which must not travel through SQLite.
func (f *Function) safely(q Querier, args []driver.Value) (v driver.Value, err error) {
	defer func() {
		if p := panicError(recover()); p != nil {
			err = p
		}
	}()
	return f.Run(context.Background(), q, time.Now(), args)
}

// Functions are the SQL functions of connections. Make one table per process and share
// it: what the driver registers it keeps for ever.
type Functions struct {
	byName  map[string][]*Function
	writers *regexp.Regexp

	mu   sync.Mutex
	free []*connDriver
}

// NewFunctions returns a table of all.
func NewFunctions(all []Function) *Functions {
	t := &Functions{byName: make(map[string][]*Function), writers: writers(all)}
	for i := range all {
		name := all[i].Name
		t.byName[name] = append(t.byName[name], &all[i])
	}
	return t
}

var noFunctions = NewFunctions(nil)

// writers matches a statement that calls one of the functions that write. What only looks
// like a call costs speed and nothing else; what hides one, such as a view, is found out
// when the call comes, see errHiddenCall.
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

// writtenBy tells whether query calls a function that writes.
func (t *Functions) writtenBy(query string) bool {
	return t.writers != nil && t.writers.MatchString(query)
}

// connDriver is a driver of one connection: the driver does not tell a function which
// connection calls it. The next connection uses it again, so that there are no more of
// them than there were connections at a time.
type connDriver struct {
	functions *Functions
	driver    *sqlite.Driver
	conn      *conn
}

// take returns a driver that no connection uses.
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
			args = -1 // the driver takes a name once
		}
		err := d.driver.RegisterFunction(name, &sqlite.FunctionImpl{
			NArgs:         int32(args),
			Deterministic: forms[0].Effect == Pure,
			VolatileArgs:  true, // else a text ends at its first NUL
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

// call runs the form that takes so many arguments.
func (d *connDriver) call(forms []*Function, args []driver.Value) (driver.Value, error) {
	if d.conn == nil {
		return nil, fmt.Errorf("%s: %w: the connection is not open yet", forms[0].Name, ErrInvalid)
	}
	for _, f := range forms {
		if f.Args == len(args) {
			return d.conn.call(f, cloned(args))
		}
	}
	return nil, fmt.Errorf("wrong number of arguments to function %s()", forms[0].Name)
}

// cloned copies what lies in SQLite's memory, and will be something else after the call.
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

package sqlite

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"modernc.org/sqlite"
)

// Functions are the SQL functions of connections. Make one table per process and share
// it: what the driver registers it keeps for ever.
type Functions struct {
	byName  map[string][]*Function
	writers *regexp.Regexp

	mu   sync.Mutex
	free []*socket
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

// writtenBy tells whether query calls a function that writes.
func (t *Functions) writtenBy(query string) bool {
	return t.writers != nil && t.writers.MatchString(query)
}

// socket is a driver of one connection: the driver does not tell a function who calls
// it. The next connection uses it again, so that there are no more of them than there
// were connections at a time.
type socket struct {
	table  *Functions
	driver *sqlite.Driver
	conn   *conn
}

func (t *Functions) take() (*socket, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		s := t.free[n-1]
		t.free = t.free[:n-1]
		return s, nil
	}
	return t.newSocket()
}

func (s *socket) giveBack() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.conn = nil
	s.table.free = append(s.table.free, s)
}

func (t *Functions) newSocket() (*socket, error) {
	s := &socket{table: t, driver: new(sqlite.Driver)}
	for name, forms := range t.byName {
		args := forms[0].Args
		if len(forms) > 1 {
			args = -1 // the driver takes a name once
		}
		err := s.driver.RegisterFunction(name, &sqlite.FunctionImpl{
			NArgs:         int32(args),
			Deterministic: forms[0].Effect == Pure,
			VolatileArgs:  true, // else a text ends at its first NUL
			Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
				return s.call(forms, args)
			},
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *socket) call(forms []*Function, args []driver.Value) (driver.Value, error) {
	if s.conn == nil {
		return nil, fmt.Errorf("%s: %w: the connection is not open yet", forms[0].Name, ErrInvalid)
	}
	for _, f := range forms {
		if f.Args == len(args) {
			return s.conn.call(f, own(args))
		}
	}
	return nil, fmt.Errorf("wrong number of arguments to function %s()", forms[0].Name)
}

// own copies what lies in SQLite's memory, and will be something else after the call.
func own(args []driver.Value) []driver.Value {
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

// open opens a connection with the functions, and with whatever the application has
// registered with the driver for its connections.
func (s *socket) open(dsn string) (driver.Conn, error) {
	if err := adopt(s.driver, dsn); err != nil {
		return nil, err
	}
	return s.driver.Open(dsn)
}

// adopt copies into d what was registered with the driver's own Driver: functions,
// collations, hooks. One's own begins without them, and the driver has no call for it,
// so it is done by the names of the fields; a test holds that it works.
func adopt(d *sqlite.Driver, dsn string) error {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return err
	}
	common, ok := connector.Driver().(*sqlite.Driver)
	if !ok {
		return nil
	}
	for _, name := range []string{"udfs", "collations", "connectionHooks"} {
		merge(field(d, name), field(common, name))
	}
	return nil
}

// field is a field of d that can be read and set; invalid when there is none.
func field(d *sqlite.Driver, name string) reflect.Value {
	v := reflect.ValueOf(d).Elem().FieldByName(name)
	if !v.IsValid() {
		return v
	}
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// merge adds to a map what it lacks, and replaces a list.
func merge(into, from reflect.Value) {
	switch {
	case !from.IsValid():
	case from.Kind() == reflect.Slice:
		into.Set(from)
	case from.Kind() == reflect.Map && from.Len() > 0:
		if into.IsNil() {
			into.Set(reflect.MakeMap(into.Type()))
		}
		for each := from.MapRange(); each.Next(); {
			if !into.MapIndex(each.Key()).IsValid() {
				into.SetMapIndex(each.Key(), each.Value())
			}
		}
	}
}

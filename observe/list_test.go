package observe

import (
	"log/slog"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEvents_Complete sets every function of an Observer. Observers must call each of them, and contained must
// shield the caller from every panic.
func TestEvents_Complete(t *testing.T) {
	fields := reflect.TypeFor[Observer]()
	require.Len(t, events, fields.NumField()-2, "all but Begin and BeginStep")
	for i := range fields.NumField() {
		field, calls := fields.Field(i), 0
		o := new(Observer)
		reflect.ValueOf(o).Elem().Field(i).Set(reflect.MakeFunc(field.Type, func([]reflect.Value) []reflect.Value {
			calls++
			panic("in " + field.Name)
		}))
		f := reflect.ValueOf(contained(Observers(nil, o), slog.New(slog.DiscardHandler))).Elem().Field(i)
		args := make([]reflect.Value, field.Type.NumIn())
		for i := range args {
			args[i] = reflect.Zero(field.Type.In(i))
			if i == 0 && len(args) == 2 {
				args[i] = reflect.ValueOf(t.Context())
			}
		}
		require.NotPanics(t, func() { f.Call(args) }, field.Name)
		require.Equal(t, 1, calls, field.Name)
	}
}

// TestContained_Empty checks that the functions of a contained empty Observer can be called without an allocation.
func TestContained_Empty(t *testing.T) {
	for _, from := range []*Observer{nil, {}} {
		o := contained(from, slog.New(slog.DiscardHandler))
		require.Nil(t, o.Tx)
		require.Nil(t, o.BeginStep)
		settled := Settled{Queue: "q", RawHeaders: `{"a":"b"}`}
		require.Zero(t, testing.AllocsPerRun(100, func() {
			ctx, end := o.Begin(t.Context(), Operation{})
			end(OperationEnd{Err: ctx.Err()})
			o.Settled(settled)
		}))
	}
}

// Headers decodes the headers of each job that has any.
func TestHeaders(t *testing.T) {
	h := map[string]string{"trace": "1"}
	require.Equal(t, h, Settled{RawHeaders: `{"trace":"1"}`}.Headers())
	require.Nil(t, Settled{}.Headers())
	require.Equal(t, []map[string]string{h, nil}, Claimed{RawHeaders: []string{`{"trace":"1"}`, "not JSON"}}.Headers())
}

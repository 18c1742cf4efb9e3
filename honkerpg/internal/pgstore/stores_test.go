package pgstore_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
)

// No store, sweep or statement of the notifier is missing, except the statements that a move needs of its file.
func TestStores_Complete(t *testing.T) {
	stores := pgstore.Stores(pgsql.DefaultSchema)
	var check func(v reflect.Value, name string)
	check = func(v reflect.Value, name string) {
		switch {
		case v.Type() == reflect.TypeFor[engine.MoveStore]():
			require.True(t, v.IsNil(), name)
		case v.Kind() == reflect.Interface, v.Kind() == reflect.Func:
			require.False(t, v.IsNil(), name)
		case v.Type() == reflect.TypeFor[engine.Sweep]():
			s := v.Interface().(engine.Sweep)
			require.NotNil(t, s.Find, name)
			require.NotNil(t, s.Take, name)
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				check(v.Field(i), v.Type().Field(i).Name)
			}
		}
	}
	check(reflect.ValueOf(stores), "stores")
}

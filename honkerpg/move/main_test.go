//go:build unix

package move_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		pgtest.Main(m)
		return
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleEnv), err)
		os.Exit(1)
	}
}

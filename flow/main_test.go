package flow_test

import (
	"testing"

	"github.com/honker-go/honker/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

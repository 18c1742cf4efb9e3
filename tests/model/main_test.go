package model_test

import (
	"testing"

	"github.com/honker-go/honker/internal/testkit"
)

// children maps the names of child processes to their main functions.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	testkit.InBubbles()
	testkit.Main(m, children)
}

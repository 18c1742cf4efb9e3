package honkerotel_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The package does not depend on an SDK, which the application must choose.
func TestImports_NoSDK(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "go.opentelemetry.io/otel/trace")
	require.NotContains(t, string(out), "go.opentelemetry.io/otel/sdk")
}

package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/admin"
)

// Each code has a severity and help, and errors come before warnings.
func TestProblemCodes_SeverityAndHelp(t *testing.T) {
	codes, warned := admin.ProblemCodes(), false
	require.Greater(t, len(codes), 20)
	for _, code := range codes {
		require.NotEmpty(t, code.Help(), code)
		switch code.Severity() {
		case admin.SeverityError:
			require.False(t, warned, code)
		case admin.SeverityWarn:
			warned = true
		default:
			t.Fatal(code)
		}
	}
	codes[0] = "changed"
	require.NotEqual(t, codes[0], admin.ProblemCodes()[0])
}

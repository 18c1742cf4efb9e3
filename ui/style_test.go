package ui_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// In both color schemes, the contrast between text and its background has the ratio required by WCAG.
func TestStyle_Contrast(t *testing.T) {
	css, err := os.ReadFile("assets/style.css")
	require.NoError(t, err)
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\n\s*\}`).FindAllSubmatch(css, -1)
	require.Len(t, schemes, 2)
	for _, scheme := range schemes {
		colors := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]+);`).FindAllSubmatch(scheme[1], -1) {
			colors[string(m[1])] = luminance(t, string(m[2]))
		}
		for _, pair := range [][2]string{{"ink", "paper"}, {"ink", "panel"}, {"ink", "hover"}, {"soft", "paper"}, {"soft", "panel"}, {"soft", "hover"}, {"faint", "paper"},
			{"faint", "panel"}, {"link", "paper"}, {"link", "panel"}, {"link", "hover"}, {"link", "info-bg"}, {"good", "good-bg"}, {"bad", "bad-bg"}, {"bad", "panel"},
			{"warn", "warn-bg"}, {"warn", "panel"}, {"primary-ink", "primary"}, {"ink", "button"}, {"bad", "button"}, {"ink", "good-bg"}, {"panel", "bad"}} {
			require.Contains(t, colors, pair[0])
			require.Contains(t, colors, pair[1])
			a, b := colors[pair[0]], colors[pair[1]]
			require.GreaterOrEqual(t, (max(a, b)+0.05)/(min(a, b)+0.05), 4.5, "%s on %s", pair[0], pair[1])
		}
	}
}

// luminance returns the relative luminance of a color, from 0 to 1.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		require.NoError(t, err)
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

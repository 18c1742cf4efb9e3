package model_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// picky is a filter with an equivalent Go function.
type picky struct {
	filter honker.Filter
	picks  func(key string) bool
	text   string
}

var (
	// Parts of keys that any client of SQLite may have stored.
	keyPieces = []string{"a", "A", "b", "%", "_", "*", "ä", "Ä", ":", "created", "\x7f", "\u0080", "\uFFFF", "\U0010FFFF", "'", `\`, " ", "\n"}
	rawPieces = append([]string{"\xff", "\x80", "\xf4\x8f\xbf\xbf\xff", "\x00", "\xc3"}, keyPieces...)
)

func drawKey(pieces []string) *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 3), func(p []string) string { return strings.Join(p, "") })
}

func drawFilter(depth int) *rapid.Generator[picky] {
	return rapid.Custom(func(t *rapid.T) picky {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 || kind < 4 {
			key := drawKey(keyPieces).Draw(t, "key")
			if kind%2 == 0 {
				return picky{honker.KeyIs(key), func(k string) bool { return k == key }, fmt.Sprintf("is %q", key)}
			}
			return picky{honker.KeyPrefix(key), func(k string) bool { return strings.HasPrefix(k, key) }, fmt.Sprintf("prefix %q", key)}
		}
		of := rapid.SliceOfN(drawFilter(depth-1), 0, 3).Draw(t, "of")
		var filters []honker.Filter
		var texts []string
		for _, f := range of {
			filters, texts = append(filters, f.filter), append(texts, f.text)
		}
		if kind == 4 {
			return picky{honker.And(filters...), func(k string) bool {
				return !slices.ContainsFunc(of, func(f picky) bool { return !f.picks(k) })
			}, fmt.Sprint("and", texts)}
		}
		return picky{honker.Or(filters...), func(k string) bool {
			return slices.ContainsFunc(of, func(f picky) bool { return f.picks(k) })
		}, fmt.Sprint("or", texts)}
	})
}

// Filters select the same events as their equivalents in Go.
func TestStream_Filter_Picks(t *testing.T) {
	picked, passed := 0, 0
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		round := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			round++
			prefix := fmt.Sprint("round", round, ":")
			pieces := rawPieces
			if !testkit.OnFile() {
				pieces = keyPieces
			}
			keys := rapid.SliceOfN(drawKey(pieces), 1, 20).Draw(t, "keys")
			for i, key := range keys {
				bytes := []byte(key)
				if key == "" && i%2 == 0 {
					bytes = nil
				}
				addEvent(t, db, fmt.Sprint(prefix, i%2), bytes, fmt.Sprint(i))
			}
			for n := range 4 {
				f := drawFilter(3).Draw(t, "filter")
				for topic, of := range map[string]func(i int) bool{
					prefix + "0": func(i int) bool { return i%2 == 0 },
					prefix + "*": func(int) bool { return true },
				} {
					var want, got []int
					for i, key := range keys {
						switch {
						case !of(i):
						case f.picks(key):
							want = append(want, i)
							picked++
						default:
							passed++
						}
					}
					batch := rapid.IntRange(1, 5).Draw(t, "batch")
					s := honker.NewStream[int](db, topic, nil)
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					consumer := fmt.Sprint("c", n)
					for e, err := range s.Subscribe(ctx, consumer, &honker.SubscribeOptions{Filter: f.filter, Batch: batch, SaveEvery: -1, SaveInterval: -1}) {
						require.NoError(t, err)
						got = append(got, e.Data)
					}
					cancel()
					infos, err := s.Consumers(context.Background())
					require.NoError(t, err)
					i := slices.IndexFunc(infos, func(i honker.ConsumerInfo) bool { return i.Name == consumer })
					require.NotEqual(t, -1, i, consumer)
					lag := infos[i].Lag
					require.Equal(t, want, got, "%s of %q", f.text, keys)
					require.EqualValues(t, len(want), lag, "lag with %s of %q", f.text, keys)
				}
			}
		})
	})
	require.True(t, picked > 100 && passed > 100 || testing.Short(), "%d picked, %d passed over", picked, passed)
}

package honker_test

import (
	"context"
	"encoding/hex"
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
)

// picky is a filter and what it should pick.
type picky struct {
	filter honker.Filter
	picks  func(key string) bool
	text   string
}

var (
	// Pieces of keys, which any client of SQLite may have stored.
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

func TestFiltersPickWhatTheySay(t *testing.T) {
	picked, passed := 0, 0
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		round := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			round++
			prefix := fmt.Sprint("round", round, ":")
			keys := rapid.SliceOfN(drawKey(rawPieces), 1, 20).Draw(t, "keys")
			var values []string
			for i, key := range keys {
				text := fmt.Sprintf("CAST(x'%s' AS TEXT)", hex.EncodeToString([]byte(key)))
				if key == "" && i%2 == 0 {
					text = "NULL"
				}
				values = append(values, fmt.Sprintf("('%s%d', %s, '%d')", prefix, i%2, text, i), "('elsewhere', 'a', '-1')")
			}
			_, err := db.SQL().Exec(`INSERT INTO _honker_stream (topic, key, payload) VALUES ` + strings.Join(values, ", "))
			require.NoError(t, err)
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
					lag := int64(-1)
					for e, err := range s.Subscribe(ctx, consumer, &honker.SubscribeOptions{Filter: f.filter, Batch: batch, SaveEvery: -1, SaveInterval: -1}) {
						if err == nil {
							got = append(got, e.Data)
						}
						infos, err := s.Consumers(context.Background())
						require.NoError(t, err)
						i := slices.IndexFunc(infos, func(i honker.ConsumerInfo) bool { return i.Name == consumer })
						lag = infos[i].Lag
					}
					cancel()
					require.Equal(t, want, got, "%s of %q", f.text, keys)
					require.EqualValues(t, len(want), lag, "lag with %s of %q", f.text, keys)
				}
			}
		})
	})
	require.True(t, picked > 100 && passed > 100 || testing.Short(), "%d picked, %d passed over", picked, passed)
}

// nested is a filter of so many levels.
func nested(depth int) honker.Filter {
	f := honker.KeyIs("a")
	for i := range depth - 1 {
		if i%2 == 0 {
			f = honker.And(f)
		} else {
			f = honker.Or(honker.KeyIs("x"), f)
		}
	}
	return f
}

// wide is a filter of so many parts, itself included.
func wide(join func(...honker.Filter) honker.Filter, leaf func(string) honker.Filter, parts int) honker.Filter {
	of := make([]honker.Filter, parts-1)
	for i := range of {
		of[i] = leaf("a")
	}
	return join(of...)
}

func TestFiltersAreBoundedInDepthAndParts(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	s := honker.NewStream[int](db, "orders", nil)
	emit(t, s, 0, honker.EventKey("b"))
	emit(t, s, 1, honker.EventKey("a"))
	for name, f := range map[string]honker.Filter{
		"depth":           nested(32),
		"or of keys":      wide(honker.Or, honker.KeyIs, 1000),
		"and of keys":     wide(honker.And, honker.KeyIs, 1000),
		"or of prefixes":  wide(honker.Or, honker.KeyPrefix, 1000),
		"and of prefixes": wide(honker.And, honker.KeyPrefix, 1000),
		"both": honker.And(honker.Or(honker.And(wide(honker.Or, honker.KeyPrefix, 400)), nested(28)),
			wide(honker.And, honker.KeyPrefix, 500)),
		"nil": honker.And(nil, honker.KeyIs("a"), nil),
	} {
		require.Equal(t, []int{1}, dataOf(take(t, s, name, &honker.SubscribeOptions{Filter: f}, 1)), name)
	}
	calls := map[string]refusal{}
	for name, f := range map[string]honker.Filter{
		"depth":        nested(33),
		"parts":        wide(honker.Or, honker.KeyIs, 1001),
		"parts below":  honker.And(wide(honker.Or, honker.KeyIs, 500), wide(honker.And, honker.KeyPrefix, 500)),
		"is NUL":       honker.KeyIs("a\x00"),
		"prefix NUL":   honker.KeyPrefix("\x00"),
		"is no UTF-8":  honker.KeyIs("\xff"),
		"prefix UTF-8": honker.Or(honker.And(honker.KeyPrefix("ü"[:1]))),
		"too long":     honker.KeyIs(strings.Repeat("x", 1025)),
	} {
		calls["Subscribe "+name] = func(c context.Context) error {
			return lastError(s.Subscribe(c, "refused", &honker.SubscribeOptions{Filter: f}))
		}
		calls["Tail "+name] = func(c context.Context) error { return lastError(s.Tail(c, honker.Beginning, f)) }
	}
	refuses(t, path, calls)
}

func TestPatternSeesItsTopicsInOneTotalOrder(t *testing.T) {
	t.Parallel()
	const publishers, each = 6, 60
	db := honkertest.Open(t, nil)
	published := make(chan error, publishers)
	for p := range publishers {
		topic := []string{"orders:a", "orders:b", "orders:", "orders", "ordersx", "Orders:a"}[p]
		go func() {
			var err error
			for i := 0; i < each && err == nil; i++ {
				_, err = honker.NewStream[int](db, topic, nil).Publish(context.Background(), i)
			}
			published <- err
		}()
	}
	for pattern, topics := range map[string][]string{
		"orders:*":  {"orders:a", "orders:b", "orders:"},
		"orders:a*": {"orders:a"},
		"orders*":   {"orders:a", "orders:b", "orders:", "orders", "ordersx"},
		"*":         {"orders:a", "orders:b", "orders:", "orders", "ordersx", "Orders:a"},
	} {
		events := take(t, honker.NewStream[int](db, pattern, nil), "c", nil, each*len(topics))
		next := map[string]int{}
		last := int64(0)
		for _, e := range events {
			require.Greater(t, e.Offset, last)
			require.Equal(t, next[e.Topic], e.Data, e.Topic)
			last = e.Offset
			next[e.Topic]++
		}
		require.Len(t, next, len(topics), pattern)
		for _, topic := range topics {
			require.Equal(t, each, next[topic], topic)
		}
	}
	for range publishers {
		require.NoError(t, <-published)
	}
}

func TestPatternIsAPrefixOfBytesWithoutWildcards(t *testing.T) {
	t.Parallel()
	_, db, _ := streamOf[int](t, "unused")
	topics := []string{"a%", "a%b", "axb", "a_", "a_b", "A%b", "a*", "a*b", "ä", "äb", "ab\U0010FFFF", "ab\U0010FFFFx", "b"}
	for i, topic := range topics { // one that ends with * can only be another binding's
		alter(t, db, `INSERT INTO _honker_stream (topic, payload) VALUES (?, ?)`, topic, fmt.Sprint(i))
	}
	for _, prefix := range []string{"", "a", "a%", "a_", "a*", "A", "ä", "ab\U0010FFFF", "c", "*"} {
		var want []int
		for i, topic := range topics {
			if strings.HasPrefix(topic, prefix) {
				want = append(want, i)
			}
		}
		s := honker.NewStream[int](db, prefix+"*", nil)
		require.Equal(t, want, kept(t, s), prefix)
		head, err := s.Head(context.Background())
		require.NoError(t, err)
		require.Equal(t, len(want) > 0, head > 0)
		if head > 0 {
			require.EqualValues(t, want[len(want)-1]+1, head)
		}
	}
}

// noise is many events, made at once.
func noise(t testing.TB, db *honker.DB, topic, key string, n int) (last int64) {
	t.Helper()
	alter(t, db, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?3)
		INSERT INTO _honker_stream (topic, key, payload) SELECT ?1, ?2, '-1' FROM n`, topic, key, n)
	return number(t, db.SQL(), `SELECT max(offset) FROM _honker_stream`)
}

func TestConsumerGetsPastALongRunOfWhatItDoesNotSeeAndRemembers(t *testing.T) {
	t.Parallel()
	run := 50_000
	if testing.Short() {
		run = 5_000
	}
	for name, c := range map[string]struct {
		topic  string
		filter honker.Filter
	}{
		"filter":             {"orders:a", honker.KeyIs("match")},
		"prefix":             {"orders:a", honker.KeyPrefix("m")},
		"pattern":            {"orders:*", nil},
		"pattern and filter": {"orders:*", honker.KeyPrefix("match")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
				follow := func(ctx context.Context, got *[]int) error {
					s := honker.NewStream[int](db, c.topic, nil)
					var last error
					for e, err := range s.Subscribe(ctx, "c", &honker.SubscribeOptions{Filter: c.filter}) {
						if last = err; err == nil {
							*got = append(*got, e.Data)
						}
					}
					return last
				}
				s, reader := honker.NewStream[int](db, "orders:a", nil), honker.NewStream[int](db, c.topic, nil)
				topic, key := "orders:a", "noise"
				if c.filter == nil {
					topic = "other"
				}
				emit(t, s, 0, honker.EventKey("match"))
				noise(t, db, topic, key, run)
				emit(t, s, 1, honker.EventKey("match"))
				end := noise(t, db, topic, key, run)
				var got []int
				stop := background(t, func(ctx context.Context) error { return follow(ctx, &got) })
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait() // what was seen is seen here, too
				require.Equal(t, []int{0, 1}, got)
				require.Equal(t, end, offsetOf(t, reader, "c"), "the run is behind it")
				end = noise(t, db, topic, key, run)
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait() // what was seen is seen here, too
				require.Equal(t, end, offsetOf(t, reader, "c"), "also without a match, and while nothing comes")
				match := emit(t, s, 2, honker.EventKey("match"))
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait() // what was seen is seen here, too
				require.ErrorIs(t, stop(), context.Canceled)
				require.Equal(t, []int{0, 1, 2}, got)
				require.Equal(t, match, offsetOf(t, reader, "c"))

				end = noise(t, db, topic, key, run)
				stop = background(t, func(ctx context.Context) error { return follow(ctx, &got) })
				synctest.Wait()
				require.ErrorIs(t, stop(), context.Canceled)
				require.Equal(t, []int{0, 1, 2}, got, "nothing comes again")
				require.Equal(t, end, offsetOf(t, reader, "c"), "at the end of the loop, too")
			})
		})
	}
}

func TestLagCountsWhatTheConsumerHasStillToSee(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	ctx := bounded(t, patient)
	s := honker.NewStream[int](db, "orders", nil)
	noise(t, db, "orders", "noise", 40)
	noise(t, db, "orders", "match", 10)
	noise(t, db, "other", "match", 30)
	lags := func(db *honker.DB, topic string) map[string]int64 {
		infos, err := honker.NewStream[string](db, topic, nil).Consumers(ctx)
		require.NoError(t, err)
		lags := map[string]int64{}
		for _, i := range infos {
			lags[i.Name] = i.Lag
			require.Equal(t, topic, i.Topic)
		}
		return lags
	}
	filtered := &honker.SubscribeOptions{Filter: honker.KeyPrefix("mat")}
	take(t, s, "all", nil, 5)
	take(t, s, "filtered", filtered, 3)
	take(t, honker.NewStream[int](db, "o*", nil), "all", nil, 1)
	take(t, honker.NewStream[int](db, "o*", nil), "filtered", filtered, 1)
	other := honkertest.OpenFile(t, path, nil) // knows what the file knows
	for _, db := range []*honker.DB{db, other, attach(t, path)} {
		require.Equal(t, map[string]int64{"all": 45, "filtered": 7}, lags(db, "orders"))
		require.Equal(t, map[string]int64{"all": 79, "filtered": 39}, lags(db, "o*"))
	}
	take(t, s, "filtered", filtered, 7)
	take(t, s, "all", nil, 45)
	noise(t, db, "other", "match", 1000)
	noise(t, db, "orders", "noise", 20)
	require.Equal(t, map[string]int64{"all": 20, "filtered": 0}, lags(other, "orders"))
	take(t, s, "filtered", nil, 1) // its filter is what the last Subscribe said
	require.Equal(t, map[string]int64{"all": 20, "filtered": 19}, lags(other, "orders"))
	noise(t, db, "orders", "match", 1)
	take(t, s, "filtered", filtered, 1)
	require.Equal(t, map[string]int64{"all": 21, "filtered": 0}, lags(other, "orders"))
}

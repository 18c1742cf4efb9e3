package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

func TestStreams_Publish_Keys(t *testing.T) {
	db := openFresh(t)
	for _, n := range []int{1, 2, 3, 4, 31, 33, 256, 257, 1000} {
		payloads, each := make([]string, n), make([]string, n)
		for i := range payloads {
			payloads[i], each[i] = fmt.Sprint(i), fmt.Sprintf("k%d", i)
			if i%3 == 1 {
				each[i] = ""
			}
		}
		for name, c := range map[string]struct {
			keys []string
			key  func(i int) any
		}{
			"none":     {nil, func(int) any { return nil }},
			"none too": {[]string{}, func(int) any { return nil }},
			"one":      {[]string{"k"}, func(int) any { return "k" }},
			"empty":    {[]string{""}, func(int) any { return "" }},
			"each":     {each, func(i int) any { return each[i] }},
		} {
			tx := begin(t, db)
			_, err := streams.Streams{}.Insert(ctx, tx, "t", nil, "first", time.Unix(6, 0))
			require.NoError(t, err)
			p := row.Publication{Topic: "t", Keys: c.keys, Payloads: payloads}
			first, last, err := streams.Streams{}.Publish(ctx, tx, p, time.Unix(7, 0))
			require.NoError(t, err)
			require.EqualValues(t, []int64{2, int64(n + 1)}, []int64{first, last}, "%s of %d", name, n)
			want := []string{}
			for i := range payloads {
				want = append(want, line([]any{int64(i + 2), "t", c.key(i), payloads[i], int64(7)}))
			}
			got := lines(t, tx, `SELECT offset, topic, key, payload, created_at FROM _honker_stream WHERE offset > 1 ORDER BY offset`)
			require.Equal(t, want, got, "%s of %d", name, n)
			require.NoError(t, tx.Rollback())
		}
	}
}

func TestStreams_Publish_WrongNumberOfKeys(t *testing.T) {
	tx := begin(t, openFresh(t))
	for _, n := range []int{0, 1, 3, 4} {
		p := row.Publication{Topic: "t", Keys: []string{"a", "b"}, Payloads: make([]string, n)}
		_, _, err := streams.Streams{}.Publish(ctx, tx, p, time.Unix(7, 0))
		require.ErrorContains(t, err, "2 keys", "%d events", n)
	}
	require.Empty(t, lines(t, tx, `SELECT * FROM _honker_stream`))
}

// A page of dead events is limited by its size in bytes, and the next page continues after it.
func TestGroups_Dead_Bytes(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6)
INSERT INTO _honker_stream (offset, topic, payload) SELECT i, 't', hex(zeroblob(150 * 1024)) FROM n`)
	exec(t, tx, `INSERT INTO _honkerx_group_claims SELECT 1, offset, 2, '', 0, 0, 1, NULL FROM _honker_stream`)
	page := func(after int64) (offsets []int64) {
		dead, err := streams.Groups{}.Dead(ctx, tx, 1, after, 1000)
		require.NoError(t, err)
		return idsOf(dead, func(d row.DeadDelivery) int64 { return d.Offset })
	}
	require.Equal(t, []int64{1, 2, 3, 4}, page(0))
	require.Equal(t, []int64{5, 6}, page(4))
	require.Empty(t, page(6))
}

package admin_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/seal"
)

func newCodec(t *testing.T, ids ...string) honker.Codec {
	t.Helper()
	keys := seal.Keys{Current: ids[0], Ring: make(map[string][]byte)}
	for _, id := range ids {
		keys.Ring[id] = []byte((id + strings.Repeat(".", 32))[:32])
	}
	c, err := seal.New(keys, nil)
	require.NoError(t, err)
	return c
}

// sealedDead creates a file with a codec and a dead job in the queue "jobs".
func sealedDead(t *testing.T) (path string, db *honker.DB, id int64) {
	path = t.TempDir() + "/sealed.db"
	db = honkertest.OpenFile(t, path, &honker.Options{Codec: newCodec(t, "old")})
	q := honker.NewQueue[string](db, "jobs", nil)
	id = testkit.Enqueue(t, q, "secret")
	require.NoError(t, testkit.ClaimOne(t, q).Reject(t.Context(), testkit.ErrCause))
	return path, db, id
}

// Requeue reseals a job's payload if the job moves to another queue and leaves it unchanged otherwise.
func TestRequeue_Codec(t *testing.T) {
	ctx := t.Context()
	_, db, id := sealedDead(t)
	jobs, other := honker.NewQueue[string](db, "jobs", nil), honker.NewQueue[string](db, "other", nil)
	before := testkit.GetJob(t, jobs, id).Payload
	_, err := admin.Requeue(ctx, db, all, &admin.RequeueOptions{To: "jobs"})
	require.NoError(t, err)
	require.Equal(t, before, testkit.GetJob(t, jobs, id).Payload)
	require.NoError(t, testkit.ClaimOne(t, jobs).Reject(ctx, nil))

	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := admin.RequeueTx(ctx, db, tx, all, &admin.RequeueOptions{To: "other"})
		return err
	}))
	require.NotEqual(t, before, testkit.GetJob(t, other, id).Payload)
	job := testkit.ClaimOne(t, other)
	require.Equal(t, "secret", job.Args)
	require.NoError(t, job.Reject(ctx, nil))
	_, err = admin.Requeue(ctx, db, all, &admin.RequeueOptions{To: "jobs"})
	require.NoError(t, err)
	require.Equal(t, "secret", testkit.ClaimOne(t, jobs).Args)
}

// Without the key, Requeue does not move a job to another queue, where no key could open its payload. The
// job can still be requeued in its own queue.
func TestRequeue_CodecMissing(t *testing.T) {
	ctx := t.Context()
	path, db, id := sealedDead(t)
	for codec, why := range map[honker.Codec]string{
		nil:                `its payload is sealed with key "old" for queue "jobs", but this DB has no Codec to open it`,
		newCodec(t, "new"): `codec: seal: the payload is sealed with key "old": key is not in the ring`,
	} {
		db2 := honkertest.OpenFile(t, path, &honker.Options{Codec: codec})
		r, err := admin.Requeue(ctx, db2, all, &admin.RequeueOptions{To: "other"})
		require.NoError(t, err)
		require.Equal(t, &admin.Report{Matched: 1, SkippedTotal: 1, Skipped: []admin.Skip{{ID: id, Why: why}}}, r)
		_, err = admin.Requeue(ctx, db2, all, nil)
		require.NoError(t, err)
		require.NoError(t, testkit.ClaimOne(t, honker.NewQueue[string](db, "jobs", nil)).Reject(ctx, nil), "it opens where the key is")
	}
	db3 := honkertest.OpenFile(t, path, &honker.Options{Codec: newCodec(t, "new", "old")})
	_, err := admin.Requeue(ctx, db3, all, &admin.RequeueOptions{To: "other"})
	require.NoError(t, err)
	job := testkit.ClaimOne(t, honker.NewQueue[string](db3, "other", nil))
	require.Equal(t, "secret", job.Args)
	id2, _ := seal.KeyOf(job.Payload)
	require.Equal(t, "new", id2)
}

// Lines contain the stored payload. An import stores it unchanged, unless the job moves to another queue.
func TestImportJobs_Codec(t *testing.T) {
	ctx := t.Context()
	_, db, id := sealedDead(t)
	stored := testkit.GetJob(t, honker.NewQueue[string](db, "jobs", nil), id).Payload
	var lines bytes.Buffer
	_, err := admin.ExportJobs(ctx, db, all, &lines)
	require.NoError(t, err)
	require.Contains(t, lines.String(), string(stored))

	codec := newCodec(t, "new", "old")
	for to, want := range map[string]string{"": "jobs", "jobs": "jobs", "other": "other"} {
		into := honkertest.Open(t, &honker.Options{Codec: codec})
		q := honker.NewQueue[string](into, want, nil)
		_, err = admin.ImportJobs(ctx, into, bytes.NewReader(lines.Bytes()), &admin.ImportOptions{To: to})
		require.NoError(t, err)
		job := testkit.ClaimOne(t, q)
		require.Equal(t, "secret", job.Args)
		require.Equal(t, want == "jobs", string(stored) == string(job.Payload))
	}
	plain := honkertest.Open(t, nil)
	_, err = admin.ImportJobs(ctx, plain, bytes.NewReader(lines.Bytes()), &admin.ImportOptions{To: "other"})
	require.ErrorContains(t, err, `line 1: its payload is sealed with key "old"`)
	_, err = admin.ImportJobs(ctx, plain, strings.NewReader(`{"queue":"jobs","payload":"clear"}`), &admin.ImportOptions{To: "other"})
	require.NoError(t, err)
	_, err = admin.ImportJobs(ctx, db, strings.NewReader(`{"payload":"clear"}`), &admin.ImportOptions{To: "other"})
	require.NoError(t, err)
	require.Equal(t, `"clear"`, string(testkit.ClaimOne(t, honker.NewQueue[json.RawMessage](db, "other", nil)).Payload))
}

// The DB's codec opens the payloads of listed jobs. Filters on sealed payloads are rejected.
func TestListJobs_Codec(t *testing.T) {
	ctx := t.Context()
	path, db, _ := sealedDead(t)
	page, err := admin.ListJobs(ctx, db, all, nil)
	require.NoError(t, err)
	args, err := honker.Args[string](&page.Jobs[0])
	require.NoError(t, err)
	require.Equal(t, "secret", args)
	for _, f := range []admin.JobFilter{{Contains: "secret"}, {Where: map[string]string{"a": "b"}}} {
		_, err := admin.ListJobs(ctx, db, f, nil)
		require.ErrorIs(t, err, honker.ErrInvalid)
		_, err = admin.CountJobs(ctx, db, f, 0)
		require.ErrorIs(t, err, honker.ErrInvalid)
		_, err = admin.DeadGroups(ctx, db, f)
		require.ErrorIs(t, err, honker.ErrInvalid)
		_, err = admin.Discard(ctx, db, f, nil)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	n, err := admin.CountJobs(ctx, honkertest.OpenFile(t, path, nil), admin.JobFilter{Contains: `"k":"old"`}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, n.N, "without a codec, a search finds what was sealed with a key")
}

//go:build unix

package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/internal/testkit"
)

// The commands for relays and actors print the same for a file and for a server.
func TestPostgres_RelaysAndActors(t *testing.T) {
	inServer, dsn := onServer(t)
	require.Zero(t, inServer.run("upgrade", "--yes").code)
	onPostgres, err := honkerpg.Open(t.Context(), dsn, &honkerpg.Options{Schema: inServer.env[schemaVariable],
		Options: honker.Options{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, onPostgres.Close()) })
	dir, inSQLite, _ := newFile(t)
	inFile := &person{t: t, env: map[string]string{fileVariable: dir + "/app.db"}}
	for _, db := range []*honker.DB{inSQLite, onPostgres} {
		fillRelays(t, db)
		runActors(t, db)
	}
	for _, line := range []string{
		"relays --columns family,queue,partitions,waiting,dead", "relay show webhooks --columns partition,processed,waiting,last_error", "relay show nothing",
		"relay dead webhooks --columns id,partition,key,state,attempts,last_error,payload", "relay dead webhooks --key acme -o name",
		"relay dead webhooks --type text/plain --limit 1 -o name", "relay requeue webhooks --all --dry-run", "relay discard webhooks 2",
		"relay requeue webhooks --partition 3 --yes", "relay dead webhooks --state any --columns id,state", "relay dead feeds --family billing",
		"actors --columns type,alive,paused,waiting,running,dead", "actor show osis --columns type,group,instance,version", "actor show none",
		"actor pause osis default 2", "actor stop osis default 2", "__complete relay show --family billing ", "__complete actor stop osis default ",
	} {
		want, got := inFile.run(strings.Split(line, " ")...), inServer.run(strings.Split(line, " ")...)
		require.NotEmpty(t, want.out+want.err, line)
		require.Equal(t, want, got, line)
	}
	for _, p := range []*person{inFile, inServer} {
		testkit.Eventually(t, testkit.Timeout, "stopped", func() bool {
			return p.run("actor", "show", "osis", "default", "2").code == codeNo
		})
	}
}

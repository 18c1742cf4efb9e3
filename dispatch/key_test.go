package dispatch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/internal/testkit"
)

// Keys follow the naming scheme byte for byte, and Parse inverts them.
func TestKeys_Exact(t *testing.T) {
	k := dispatch.Keys{}
	osis := dispatch.Target{Type: "osis"}
	for want, key := range map[string]string{
		"hero:job:17":                                       k.Job(17),
		"hero:q:reply:17":                                   k.Reply(17),
		"hero:q:work:type:osis":                             k.Work(osis),
		"hero:q:work:type:sal:group:io":                     k.Work(dispatch.Target{Type: "sal", Group: "io"}),
		"hero:q:work:type:sal:group:io:inst:3":              k.Work(dispatch.Target{Type: "sal", Group: "io", Instance: "3"}),
		"hero:q:work:type:osis:group:default:inst:1":        k.Work(dispatch.Target{Type: "osis", Instance: "1"}),
		"hero:q:work:type:osis:prio:2":                      k.Work(dispatch.Target{Type: "osis", Prio: 2}),
		"hero:q:work:type:osis:group:default:inst:1:prio:1": k.Work(dispatch.Target{Type: "osis", Instance: "1", Prio: 1}),
		"hero:q:ctl:type:osis":                              k.Control(osis),
		"hero:q:ctl:type:osis:group:io":                     k.Control(dispatch.Target{Type: "osis", Group: "io"}),
		"hero:q:ctl:type:osis:group:default:inst:2":         k.Control(dispatch.Target{Type: "osis", Instance: "2"}),
		"hero:meta:actor:inst:osis:default:2":               k.Presence(dispatch.Identity{Type: "osis", Instance: "2"}),
		"hero:meta:queue:stats:hero:q:work:type:osis":       k.Stats(k.Work(osis)),
		"hero:job:actor_queue:osis":                         k.LegacyActorQueue("osis"),
		"hero:job:osis_1":                                   k.LegacyJob("osis_1"),
		"hero:work_queue:osis_1":                            k.LegacyWorkQueue("osis_1"),
		"hero:reply:17":                                     k.LegacyReply(17),
		"app/q:work:type:osis":                              dispatch.Keys{Prefix: "app/"}.Work(osis),
	} {
		require.Equal(t, want, key)
		keys := k
		if !strings.HasPrefix(key, "hero:") {
			keys.Prefix = "app/"
		}
		parsed, err := keys.Parse(key)
		require.NoError(t, err, key)
		require.Equal(t, key, keys.Format(parsed))
	}
}

// A target's queue depends on its most specific part. An instance without a group is in
// DefaultGroup.
func TestKeys_Work_Parse(t *testing.T) {
	k := dispatch.Keys{}
	key, err := k.Parse(k.Work(dispatch.Target{Type: "osis", Instance: "2", Prio: 1}))
	require.NoError(t, err)
	require.Equal(t, dispatch.Key{Kind: dispatch.KindWork, Target: dispatch.Target{Type: "osis", Group: "default", Instance: "2", Prio: 1}}, key)
	key, err = k.Parse(k.Presence(dispatch.Identity{Type: "v", Group: "g", Instance: "i"}))
	require.NoError(t, err)
	require.Equal(t, dispatch.Target{Type: "v", Group: "g", Instance: "i"}, key.Target)
	key, err = k.Parse(k.LegacyJob("osis_1"))
	require.NoError(t, err)
	require.Equal(t, dispatch.Key{Kind: dispatch.KindLegacyJob, Actor: "osis_1"}, key)
}

// Names that could forge another address are rejected.
func TestKeys_Hostile(t *testing.T) {
	k := dispatch.Keys{}
	for _, name := range []string{"", ":", "a:group:b", "a:prio:0", "*", "a*", "a\x00", "\xff", strings.Repeat("x", 256)} {
		require.Empty(t, k.Work(dispatch.Target{Type: name}), "%q", name)
		require.Empty(t, k.Control(dispatch.Target{Type: name}))
		require.Empty(t, k.LegacyActorQueue(name))
		require.Empty(t, k.LegacyWorkQueue(name))
		require.Empty(t, k.Presence(dispatch.Identity{Type: "a", Instance: name}))
		if name != "" {
			require.Empty(t, k.Work(dispatch.Target{Type: "a", Group: name}))
			require.Empty(t, k.Work(dispatch.Target{Type: "a", Instance: name}))
		}
	}
	require.Empty(t, k.LegacyJob("17"), "a job's")
	require.Empty(t, k.Work(dispatch.Target{Type: "a", Prio: -1}))
	require.Empty(t, dispatch.Keys{Prefix: strings.Repeat("p", 65)}.Job(1))
	longest := strings.Repeat("x", 255)
	require.LessOrEqual(t, len(dispatch.Keys{Prefix: strings.Repeat("p", 64)}.Work(
		dispatch.Target{Type: longest, Group: longest, Instance: longest, Prio: 7})), 1024)
	for _, key := range []string{"", "hero:", "hero:job:", "hero:q:work:type:", "other:job:1",
		"hero:q:work:type:a:prio:0", "hero:q:work:type:a:prio:99", "hero:q:work:type:a:inst:1", "hero:q:work:group:a:type:b",
		"hero:q:work:type:a:group:b:group:c", "hero:meta:actor:inst:a:b", "hero:q:ctl:type:a:prio:1"} {
		_, err := k.Parse(key)
		require.ErrorIs(t, err, honker.ErrInvalid, "%q", key)
	}
}

// For every key that Parse accepts, Format returns the same key.
func TestKeys_Parse_RoundTrip(t *testing.T) {
	r := testkit.Rand(testkit.Seed(t), 1)
	words := []string{"hero", "q", "work", "ctl", "type", "group", "inst", "prio", "job", "meta", "actor", "reply", "actor_queue", "work_queue", "0", "7", "a", ""}
	parsed := 0
	for range 200_000 {
		var parts []string
		for range 1 + r.IntN(9) {
			parts = append(parts, words[r.IntN(len(words))])
		}
		text := "hero:" + strings.Join(parts, ":")
		key, err := dispatch.Keys{}.Parse(text)
		if err != nil {
			require.ErrorIs(t, err, honker.ErrInvalid)
			continue
		}
		parsed++
		require.Equal(t, text, dispatch.Keys{}.Format(key))
	}
	require.NotZero(t, parsed)
}

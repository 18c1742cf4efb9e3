package honkertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

// Match says more about the jobs that are looked for. Each narrows the search, but for [Count].
type Match func(*matcher)

type matcher struct {
	argsType reflect.Type // of Where; nil without one
	count    int          // of jobs that have to match
	tests    []test
}

// test returns what is wrong with a job; "" if it is as wanted.
type test func(j *honker.JobInfo, args any) string

func newMatcher(opts []Match) *matcher {
	m := &matcher{count: 1}
	for _, option := range opts {
		option(m)
	}
	return m
}

func (m *matcher) add(t test) { m.tests = append(m.tests, t) }

// Where picks jobs by their arguments. Its T is that of the queue; else the test fails.
func Where[T any](ok func(T) bool) Match {
	return func(m *matcher) {
		m.argsType = reflect.TypeFor[T]()
		m.add(func(_ *honker.JobInfo, args any) string {
			if v, is := args.(T); is && !ok(v) {
				return "Where is false"
			}
			return ""
		})
	}
}

// At picks jobs that are due at want, within so much before or after it. The file keeps whole
// seconds, and rounds up: so a job is also due at want in the second after it, and with within 0
// exactly at the second that an enqueue with RunAt(want) gives it.
func At(want time.Time, within time.Duration) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string {
			first, end := want.Add(-within), want.Add(within+time.Second)
			if !j.RunAt.Before(first) && j.RunAt.Before(end) {
				return ""
			}
			return fmt.Sprintf("due %s, want %s", j.RunAt.UTC().Format(time.RFC3339), want.UTC().Format(time.RFC3339Nano))
		})
	}
}

// Priority picks jobs of this priority.
func Priority(want int) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string { return differs("priority", j.Priority, want) })
	}
}

// Unique picks jobs with this unique key: that of [honker.Unique], or what [honker.UniqueArgs] has
// made. "" picks jobs without one.
func Unique(want string) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string { return differs("unique key", j.Unique, want) })
	}
}

// Key picks jobs that share limits by this key, that of [honker.Key]; "" picks jobs without one.
func Key(want string) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string { return differs("key", j.Key, want) })
	}
}

// Header picks jobs that have this header with this value, that of [honker.Headers] or of Options.Headers; ""
// picks jobs without it too.
func Header(name, want string) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string {
			return differs(fmt.Sprintf("header %q", name), j.Headers[name], want)
		})
	}
}

// Count wants so many jobs that match: as many for [RequireEnqueued], instead of one. For the other
// functions it means nothing.
func Count(n int) Match { return func(m *matcher) { m.count = n } }

func differs[V comparable](what string, got, want V) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s %#v, want %#v", what, got, want)
}

// wanted is a test for arguments: they are compared as the JSON that a queue stores, in which a time
// has no monotonic clock, and a field that is left out does not count.
func wanted[T any](want T) (test, error) {
	wantJSON, err := plainJSON(want)
	if err != nil {
		return nil, err
	}
	return func(_ *honker.JobInfo, args any) string {
		got, err := plainJSON(args)
		if err != nil {
			return err.Error()
		}
		return joined(differences("", got, wantJSON))
	}, nil
}

// plainJSON is v as JSON has it: maps, slices, texts, numbers as they are written.
func plainJSON(v any) (plain any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&plain)
	return plain, err
}

// differences are where two values of JSON differ, field by field.
func differences(path string, got, want any) []string {
	if reflect.DeepEqual(got, want) {
		return nil
	}
	gotMap, isMap := got.(map[string]any)
	wantMap, both := want.(map[string]any)
	if !isMap || !both {
		if path == "" {
			path = "arguments"
		}
		return []string{fmt.Sprintf("%s %s, want %s", path, compact(got), compact(want))}
	}
	keys := slices.Collect(maps.Keys(gotMap))
	for key := range wantMap {
		if _, is := gotMap[key]; !is {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var all []string
	for _, key := range keys {
		all = append(all, differences(inner(path, key), gotMap[key], wantMap[key])...)
	}
	return all
}

func inner(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%.200s", text)
}

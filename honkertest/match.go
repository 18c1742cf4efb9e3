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

// A Match restricts the jobs to look for. If several are given, a job must satisfy all of them.
// [Count] is an exception and does not restrict the jobs.
type Match func(*matcher)

type matcher struct {
	argsType reflect.Type  // T of Where; nil without Where
	count    int           // number of jobs that must match
	unit     time.Duration // to which the database rounds times up
	tests    []test
}

// A test describes how a job differs from the wanted value. It returns "" if the job matches.
type test func(j *honker.JobInfo, args any) string

func newMatcher(opts []Match) *matcher {
	m := &matcher{count: 1}
	for _, option := range opts {
		option(m)
	}
	return m
}

func (m *matcher) add(t test) { m.tests = append(m.tests, t) }

// Where matches jobs for whose arguments ok returns true. The test fails if T is not the queue's
// argument type.
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

// At matches jobs that are due at want, plus or minus within. A file stores times in whole seconds,
// rounded up, so a job that is due within a second after want also matches. Postgres stores
// microseconds. If within is 0, At matches exactly the jobs enqueued with RunAt(want).
func At(want time.Time, within time.Duration) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string {
			first, end := want.Add(-within), want.Add(within+m.unit)
			if !j.RunAt.Before(first) && j.RunAt.Before(end) {
				return ""
			}
			return fmt.Sprintf("due %s, want %s", j.RunAt.UTC().Format(time.RFC3339), want.UTC().Format(time.RFC3339Nano))
		})
	}
}

// Priority matches jobs with this priority.
func Priority(want int) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string { return differs("priority", j.Priority, want) })
	}
}

// Unique matches jobs with this unique key, as set by [honker.Unique] or computed by
// [honker.UniqueArgs]. "" matches jobs without a unique key.
func Unique(want string) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string { return differs("unique key", j.Unique, want) })
	}
}

// Key matches jobs with this key, as set by [honker.Key]. "" matches jobs without a key.
func Key(want string) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string { return differs("key", j.Key, want) })
	}
}

// Header matches jobs whose header name has the value want, as set by [honker.Headers] or
// Options.Headers. "" also matches jobs without the header.
func Header(name, want string) Match {
	return func(m *matcher) {
		m.add(func(j *honker.JobInfo, _ any) string {
			return differs(fmt.Sprintf("header %q", name), j.Headers[name], want)
		})
	}
}

// Count makes [RequireEnqueued] expect n matching jobs instead of one. Other functions ignore it.
func Count(n int) Match { return func(m *matcher) { m.count = n } }

func differs[V comparable](what string, got, want V) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s %#v, want %#v", what, got, want)
}

// wanted returns a test for arguments. It compares them in the JSON form that a queue stores, in
// which a time has no monotonic clock reading and omitted fields are absent.
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

// plainJSON marshals v and decodes the JSON into generic values. Numbers keep their original text.
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

// differences returns the differences between two JSON values, field by field.
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

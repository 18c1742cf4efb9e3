package ui_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/ui"
)

// The error for an invalid parameter names it, and nothing is changed.
func TestParams_Bad(t *testing.T) {
	_, h := open(t, nil)
	long := strings.Repeat("x", 5000)
	for target, name := range map[string]string{
		"?from=-1": "from", "?from=9999999999999999999": "from", "?q=" + long: "q", "?q=a&q=b": "q", "?q=%ff": "q", "?q=%00": "q",
		"queue": "name", "queue?name=": "name", "queue?name=a&span=100y": "span",
		"job": "id", "job?id=0": "id", "job?id=x": "id", "job?id=1&id=2": "id", "job?id=-5": "id", "job?id=1&whole=yes": "whole",
		"jobs?limit=0": "limit", "jobs?limit=201": "limit", "jobs?order=best": "order", "jobs?phase=lost": "phase", "jobs?id=1,x": "id",
		"jobs?attempts=-1": "attempts", "jobs?where=novalue": "where", "jobs?created_since=yesterday": "created_since",
		"jobs?died_before=99999h": "died_before", "jobs?contains=" + long: "contains", "jobs?all=true": "all",
		"jobs?" + strings.Repeat("queue=a&", 101): "queue", "jobs?id=" + strings.Repeat("1,", 1001): "id",
		"jobs?after=" + long: "after", "audit?before=-1": "before", "stream?topic=a&before=x": "before",
	} {
		w := get(h, "/"+target)
		require.Equal(t, http.StatusBadRequest, w.Code, target)
		require.Contains(t, w.Body.String(), name+": ", target)
	}
	for _, target := range []string{"jobs?after=garbage", "jobs?order=claim", "?q=%zz"} {
		require.Equal(t, http.StatusBadRequest, get(h, "/"+target).Code, target)
	}
	big := url.Values{"queue": {"a"}, "payload": {strings.Repeat("1", 2<<20)}}
	require.Equal(t, http.StatusBadRequest, ask(h, http.MethodPost, "/enqueue", big).Code)
	require.Equal(t, http.StatusNotFound, get(h, "/nothing").Code)
	require.Equal(t, http.StatusNotFound, get(h, "/job?id=4711").Code)
}

// No query or form causes an internal server error.
func FuzzParams(f *testing.F) {
	for _, seed := range []string{"id=1", "queue=a&phase=dead&where=a%3Db", "name=x&span=7d", "topic=orders&before=3", "after=x&order=claim&queue=a", "selection=1", "all=1&confirm=1&n=5&typed=5"} {
		for i := range ui.Routes() {
			f.Add(i, seed)
		}
	}
	h := ui.New(honkertest.Open(f, nil), &ui.Options{Authorize: ui.AllowAll, Enqueue: true})
	f.Cleanup(h.Close)
	f.Fuzz(func(t *testing.T, row int, query string) {
		all := ui.Routes()
		rt := all[((row%len(all))+len(all))%len(all)]
		if rt.Path == "events" {
			return
		}
		if !rt.Post {
			r := "/" + rt.Path + "?" + url.QueryEscape(query)
			if _, err := url.ParseRequestURI("/x?" + query); err == nil && !strings.ContainsAny(query, " \r\n\x00") {
				r = "/" + rt.Path + "?" + query
			}
			require.Less(t, get(h, r).Code, 500, r)
			return
		}
		form, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		require.Less(t, ask(h, http.MethodPost, "/"+rt.Path, form).Code, 500, "%s %q", rt.Path, query)
	})
}

// layOut adds line breaks to a payload and changes nothing else.
func TestPayload_LayOut(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":12345678901234567890,"b":1.50,"c":1e999}`: "{\n  \"a\": 12345678901234567890,\n  \"b\": 1.50,\n  \"c\": 1e999\n}",
		`["\u0041\"]","😀",[],{ },[ 1 ]]`:                "[\n  \"\\u0041\\\"]\",\n  \"😀\",\n  [],\n  {},\n  [\n    1\n  ]\n]",
		"null":                                          "null",
		` -0.0 `:                                        "-0.0",
		"not json {":                                    "not json {",
		"\xff":                                          "�",
		`{"z":1,"a":{"z":1,"a":2}}`:                     "{\n  \"z\": 1,\n  \"a\": {\n    \"z\": 1,\n    \"a\": 2\n  }\n}",
	} {
		text, more := ui.LayOut(json.RawMessage(in), 1000)
		require.Equal(t, want, text)
		require.False(t, more)
	}
	text, more := ui.LayOut(json.RawMessage(strings.Repeat("[", 5000)+strings.Repeat("]", 5000)), 4096)
	require.True(t, more)
	require.LessOrEqual(t, len(text), 4096)
}

// Removing the whitespace that layOut adds restores the payload.
func FuzzLayOut(f *testing.F) {
	f.Add(`{"a":[1,"x",{"b":null}],"c":""}`)
	f.Add(`"\\\""`)
	f.Fuzz(func(t *testing.T, in string) {
		text, more := ui.LayOut(json.RawMessage(in), 1<<20)
		if more || !json.Valid([]byte(in)) || strings.ToValidUTF8(in, "") != in {
			return
		}
		var was, is bytes.Buffer
		require.NoError(t, json.Compact(&was, []byte(in)))
		require.NoError(t, json.Compact(&is, []byte(text)))
		require.Equal(t, was.String(), is.String())
	})
}

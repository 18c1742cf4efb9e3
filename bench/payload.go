package main

import (
	"encoding/json"
)

// payload is about a hundred bytes of JSON, like that of a small real job. N identifies the job.
type payload struct {
	To, Subject, Body string
	N                 int64
}

func newPayload(n int64) payload {
	return payload{"someone@example.org", "Your order has been shipped", "it is on its way", n}
}

func payloads(n int) []payload {
	out := make([]payload, n)
	for i := range out {
		out[i] = newPayload(int64(i))
	}
	return out
}

func payloadText(n int64) string {
	text, err := json.Marshal(newPayload(n))
	if err != nil {
		panic(err) // cannot happen for strings and an integer
	}
	return string(text)
}

func readPayload(text []byte) (int64, error) {
	var p payload
	err := json.Unmarshal(text, &p)
	return p.N, err
}

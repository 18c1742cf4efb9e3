package main

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// customer receives webhooks. It logs them in a file that is independent of the shop's database.
type customer struct {
	name   string
	secret string

	mu      sync.Mutex
	ledger  *os.File
	numbers []int64         // order numbers, in the order of their first arrival
	seen    map[string]bool // idempotency keys
	again   int             // number of repeated webhooks
}

// newCustomer loads the log of earlier runs.
func newCustomer(db, name string) (*customer, error) {
	path := filepath.Join(filepath.Dir(db), name+".received")
	ledger, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	c := &customer{name: name, secret: newSecret(), ledger: ledger, seen: make(map[string]bool)}
	lines := bufio.NewScanner(ledger)
	for lines.Scan() {
		number, key, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), ledger.Close())
		}
		c.count(n, key)
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Join(err, ledger.Close())
	}
	return c, nil
}

// newSecret returns a secret with which the shop signs and the customer verifies.
func newSecret() string {
	secret := make([]byte, 24)
	_, _ = rand.Read(secret) // never returns an error
	return "whsec_" + base64.StdEncoding.EncodeToString(secret)
}

// count records the arrival of a webhook. A webhook with a known key is a duplicate.
func (c *customer) count(number int64, key string) {
	if c.seen[key] {
		c.again++
		return
	}
	c.seen[key] = true
	c.numbers = append(c.numbers, number)
}

// receive logs a webhook. It must return before the endpoint answers, so that every webhook the
// shop considers delivered is in the log.
func (c *customer) receive(number int64, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintf(c.ledger, "%d %s\n", number, key); err != nil {
		return err
	}
	c.count(number, key)
	return nil
}

// received returns the number of distinct webhooks, whether they arrived in order, and the number
// of duplicates.
func (c *customer) received() (n int64, inOrder bool, again int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inOrder = true
	for i, number := range c.numbers {
		inOrder = inOrder && number == int64(i)+1
	}
	return int64(len(c.numbers)), inOrder, c.again
}

// ServeHTTP is the endpoint. The shop sends a webhook again, or gives up, if the status is not 2xx.
func (c *customer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if err := verify(c.secret, r.Header, body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var hook webhook
	if err := json.Unmarshal(body, &hook); err != nil || hook.Customer != c.name {
		http.Error(w, "not a webhook for "+c.name, http.StatusBadRequest)
		return
	}
	if err := c.receive(hook.Number, r.Header.Get("Idempotency-Key")); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// verify checks a signature as specified by Standard Webhooks. Receivers can also use the libraries
// of that project.
func verify(secret string, h http.Header, body []byte, now time.Time) error {
	id, sent := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return errors.New("timestamp missing or out of range")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, sent, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for signature := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if hmac.Equal([]byte(signature), []byte(want)) {
			return nil
		}
	}
	return errors.New("signature mismatch")
}

// downtime is the period in which an endpoint is down.
type downtime struct{ from, to time.Time }

// refuse wraps endpoint with a handler that answers 503 during the downtime.
func (d downtime) refuse(endpoint http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now := time.Now(); now.After(d.from) && now.Before(d.to) {
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
			return
		}
		endpoint.ServeHTTP(w, r)
	})
}

// host is the HTTP server with the endpoints of all customers.
type host struct {
	http.Server
	url string
}

func listen(customers []*customer, d downtime) (*host, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	endpoints := http.NewServeMux()
	for _, c := range customers {
		var endpoint http.Handler = c
		if c.name == unreliable {
			endpoint = d.refuse(c)
		}
		endpoints.Handle("POST /"+c.name, endpoint)
	}
	h := &host{url: "http://" + listener.Addr().String()}
	h.Handler = endpoints
	go h.Serve(listener) // until Close
	return h, nil
}

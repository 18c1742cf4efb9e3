package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// These limits apply to logins that are waiting for bcrypt. Any further logins are rejected, because it costs a client
// nothing to send any number of wrong passwords.
const (
	loginsPerAddress = 16
	loginsPerName    = 4 // per address, because behind a proxy all clients share an address
	loginWait        = 5 * time.Second
)

var (
	errTooManyLogins = errors.New("too many logins are waiting")
	errLoginTooLate  = errors.New("the login waited too long")
)

// turns admits a single login at a time, so that wrong passwords keep no more than a single core busy. Addresses take
// turns: no matter how many logins an address sends, they delay other addresses by only a single comparison.
type turns struct {
	mu    sync.Mutex
	taken bool
	lines []*addressLogins // by address, in the order of their next turns
}

// addressLogins holds the waiting logins of an address, oldest first. It is never empty.
type addressLogins struct {
	address netip.Prefix
	logins  []*login
}

type login struct {
	name [sha256.Size]byte
	turn chan struct{} // closed when the login may proceed
}

// take waits for a turn, which the caller must end by calling leave. It returns an error if too many logins are waiting
// for the address or the name, if loginWait elapses, or if ctx ends.
func (t *turns) take(ctx context.Context, address netip.Prefix, name [sha256.Size]byte) error {
	mine := &login{name: name, turn: make(chan struct{})}
	if !t.push(address, mine) {
		return errTooManyLogins
	}
	timer := time.NewTimer(loginWait)
	defer timer.Stop()
	var err error
	select {
	case <-mine.turn:
		return nil
	case <-timer.C:
		err = errLoginTooLate
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !t.remove(address, mine) {
		t.leave() // the turn came at the same moment
	}
	return err
}

// push admits a login or adds it to the queue. It returns false if the queue is full.
func (t *turns) push(address netip.Prefix, mine *login) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		t.taken = true
		close(mine.turn)
		return true
	}
	i := t.lineOf(address)
	if i < 0 {
		t.lines = append(t.lines, &addressLogins{address: address, logins: []*login{mine}})
		return true
	}
	of := t.lines[i]
	same := 0
	for _, other := range of.logins {
		if other.name == mine.name {
			same++
		}
	}
	if same >= loginsPerName || len(of.logins) >= loginsPerAddress {
		return false
	}
	of.logins = append(of.logins, mine)
	return true
}

func (t *turns) lineOf(address netip.Prefix) int {
	return slices.IndexFunc(t.lines, func(l *addressLogins) bool { return l.address == address })
}

// remove removes a waiting login, and reports whether it was still waiting.
func (t *turns) remove(address netip.Prefix, mine *login) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.lineOf(address)
	if i < 0 {
		return false
	}
	of := t.lines[i]
	j := slices.Index(of.logins, mine)
	if j < 0 {
		return false
	}
	of.logins = slices.Delete(of.logins, j, j+1)
	if len(of.logins) == 0 {
		t.lines = slices.Delete(t.lines, i, i+1)
	}
	return true
}

// leave ends a turn and admits the next login.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		t.taken = false
		return
	}
	of := t.lines[0]
	t.lines = t.lines[1:]
	next := of.logins[0]
	if of.logins = of.logins[1:]; len(of.logins) > 0 {
		t.lines = append(t.lines, of)
	}
	close(next.turn)
}

// addressOf returns the address of the client. An IPv6 address is reduced to its /64 network, because a client can use
// any address in that network.
func addressOf(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	address, _ := netip.ParseAddr(host)
	address = address.Unmap().WithZone("")
	bits := 32
	if address.Is6() {
		bits = 64
	}
	network, _ := address.Prefix(bits) // invalid addresses share the zero prefix
	return network
}

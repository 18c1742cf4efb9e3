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

// Bounds of the logins that wait for bcrypt. All other logins must come later: wrong passwords need none to be right, so
// a client can send any number.
const (
	loginsPerAddress = 16
	loginsPerName    = 4 // of an address: behind a proxy all clients have one
	loginWait        = 5 * time.Second
)

var (
	errTooManyLogins = errors.New("too many logins wait")
	errLoginTooLate  = errors.New("the login has waited too long")
)

// turns admits one login at a time, so wrong passwords take one core at most. The addresses that logins come from have turns: an
// address that sends many delays another by no more than one.
type turns struct {
	mu    sync.Mutex
	taken bool
	lines []*addressLogins // by address; the first has the next turn
}

// addressLogins holds the logins of an address that wait, the oldest first. It has at least one.
type addressLogins struct {
	address netip.Prefix
	logins  []*login
}

type login struct {
	name [sha256.Size]byte
	turn chan struct{} // closed when it has its turn
}

// take waits for a turn, which ends with leave. It returns an error if too many logins of the address or of the name
// wait, if it has waited for loginWait, or if ctx has ended.
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
		t.leave() // the turn has come meanwhile
	}
	return err
}

// push gives a login its turn or a place, or reports false.
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

// remove takes a login out that waits, and reports whether it did.
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

// leave ends a turn, and gives the next.
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

// addressOf returns the address that a request comes from. Of version 6 it is the network of 64 bits, which a client has
// to itself.
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
	network, _ := address.Prefix(bits) // the zero prefix for what is no address: all of these share their turns
	return network
}

package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/bcrypt"
)

// accountsVariable has what --basic takes, a line for each account: arguments are seen by all users of a machine.
const accountsVariable = "HONKER_UI_BASIC"

const tryHash = "htpasswd -nB USER, which asks for the password and prints what --basic takes"

// accounts are the names that may sign in to a dashboard, with their passwords.
type accounts struct {
	all     []*account
	cost    int // of all hashes
	turns   turns
	compare func(hash, password []byte) error
}

// account is one of them.
type account struct {
	name [sha256.Size]byte // its hash, so that names of all lengths are compared in the same time
	hash []byte            // of the password, by bcrypt
	// accepted is the hash of the last header that was right: bcrypt is slow, as it is meant to be, and a browser
	// sends the header with every request of a page.
	accepted atomic.Pointer[[sha256.Size]byte]
}

// bcryptHash is what bcrypt.Cost, which bounds the cost, does not look at: $2y$, the cost, 22 letters of salt and 31 of hash.
var bcryptHash = regexp.MustCompile(`^\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}$`)

// accounts are those of --basic and of the environment; nil if there are none. Of one name the last counts.
func (a *app) accounts(given []string) (*accounts, error) {
	s := &accounts{compare: bcrypt.CompareHashAndPassword}
	for line := range strings.Lines(a.getenv(accountsVariable)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := s.add("$"+accountsVariable, line); err != nil {
			return nil, err
		}
	}
	for _, line := range given {
		if err := s.add("--basic", strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	if s.all == nil {
		return nil, nil
	}
	return s, nil
}

// add refuses what is no account. What was given may be a password, and is not repeated.
func (s *accounts) add(source, line string) error {
	name, hash, _ := strings.Cut(line, ":")
	if name == "" || hash == "" {
		return usage(tryHash, "%s needs user:hash", source)
	}
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil || !bcryptHash.MatchString(hash) {
		return usage(tryHash, "%s needs user:hash with a hash of bcrypt, such as $2y$…: neither a password nor another hash is taken", source)
	}
	if err := s.checkCost(source, cost); err != nil {
		return err
	}
	s.all = append(s.all, &account{name: sha256.Sum256([]byte(name)), hash: []byte(hash)})
	return nil
}

// maxCost bounds the cost of a hash: 14 takes about a second, and each more takes twice as long.
const maxCost = 14

// checkCost refuses a cost that would hold up all logins, and one that differs from that of the other accounts: the time
// of an answer would tell which names there are.
func (s *accounts) checkCost(source string, cost int) error {
	if cost > maxCost {
		return usage(tryHash, "%s has a hash with a cost of %d, at most %d", source, cost, maxCost)
	}
	if s.cost != 0 && s.cost != cost {
		return usage("htpasswd -nBC 12 USER, for each account", "%s has a hash with a cost of %d, and another account %d: all need the same", source, cost, s.cost)
	}
	s.cost = cost
	return nil
}

var errPassword = errors.New("a name and a password are needed")

// check returns nil for a request with a name and its password. Other errors than errPassword say that the password
// was not looked at.
func (s *accounts) check(r *http.Request) error {
	name, password, given := r.BasicAuth()
	if !given {
		return errPassword
	}
	header := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	if s.wasAccepted(header) {
		return nil
	}
	if err := s.turns.take(r.Context(), addressOf(r), sha256.Sum256([]byte(name))); err != nil {
		return err
	}
	defer s.turns.leave()
	if s.wasAccepted(header) { // of a request beside this one
		return nil
	}
	one, known := s.find(name)
	if s.compare(one.hash, []byte(password)) != nil || !known {
		return errPassword
	}
	one.accepted.Store(&header)
	return nil
}

func (s *accounts) wasAccepted(header [sha256.Size]byte) bool {
	found := 0
	for _, one := range s.all {
		if accepted := one.accepted.Load(); accepted != nil {
			found |= subtle.ConstantTimeCompare(accepted[:], header[:])
		}
	}
	return found == 1
}

// find returns the account of a name. Of one that there is not it returns another, so that the answer takes as long.
func (s *accounts) find(name string) (found *account, known bool) {
	sum, found := sha256.Sum256([]byte(name)), s.all[0]
	for _, one := range s.all {
		if subtle.ConstantTimeCompare(sum[:], one.name[:]) == 1 {
			found, known = one, true
		}
	}
	return found, known
}

// refuseLogin answers a request that check has refused.
func refuseLogin(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errPassword):
		askPassword(w)
	case errors.Is(err, errTooManyLogins):
		comeLater(w, "1", http.StatusTooManyRequests)
	default:
		comeLater(w, "5", http.StatusServiceUnavailable)
	}
}

func comeLater(w http.ResponseWriter, seconds string, status int) {
	w.Header().Set("Retry-After", seconds)
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "Too many logins wait: come again in some seconds.", status)
}

// askPassword makes a browser ask for a name and a password.
func askPassword(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="honker", charset="UTF-8"`)
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "A name and a password are needed.", http.StatusUnauthorized)
}

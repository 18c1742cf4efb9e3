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

// accountsVariable names an environment variable that can be used instead of --basic, with an account on each line.
// Unlike arguments, the environment isn't visible to other users of the machine.
const accountsVariable = "HONKER_UI_BASIC"

const tryHash = "htpasswd -nB USER, which asks for the password and prints what --basic takes"

// accounts holds the names and password hashes of the users who may sign in to the dashboard.
type accounts struct {
	all     []*account
	cost    int // bcrypt cost, the same for all hashes
	turns   turns
	compare func(hash, password []byte) error
}

// account is a user name with its password hash.
type account struct {
	name [sha256.Size]byte // SHA-256 of the name, so that names of any length are compared in constant time
	hash []byte            // bcrypt hash of the password
	// accepted is the hash of the last Authorization header that matched. bcrypt is slow on purpose, and a browser
	// sends the header with every request that a page makes.
	accepted atomic.Pointer[[sha256.Size]byte]
}

// bcryptHash matches a complete bcrypt hash: $2y$, the cost, 22 characters of salt and 31 characters of hash.
// bcrypt.Cost would check only the cost.
var bcryptHash = regexp.MustCompile(`^\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}$`)

// accounts returns the accounts from --basic and the environment, or nil if there are none. If a name occurs more than
// once, the last entry wins.
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

// add adds an account. Errors never repeat line, which may be a password.
func (s *accounts) add(source, line string) error {
	name, hash, _ := strings.Cut(line, ":")
	if name == "" || hash == "" {
		return usage(tryHash, "%s requires user:hash", source)
	}
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil || !bcryptHash.MatchString(hash) {
		return usage(tryHash, "%s requires user:hash with a bcrypt hash such as $2y$…; passwords and other hashes are not accepted", source)
	}
	if err := s.checkCost(source, cost); err != nil {
		return err
	}
	s.all = append(s.all, &account{name: sha256.Sum256([]byte(name)), hash: []byte(hash)})
	return nil
}

// maxCost is the highest accepted bcrypt cost. A comparison takes about a second at cost 14, and each step doubles the
// time.
const maxCost = 14

// checkCost rejects a cost that is so high that it would delay all logins. It also rejects mixed costs, because
// response times would then reveal which names exist.
func (s *accounts) checkCost(source string, cost int) error {
	if cost > maxCost {
		return usage(tryHash, "%s has a bcrypt cost of %d; the maximum is %d", source, cost, maxCost)
	}
	if s.cost != 0 && s.cost != cost {
		return usage("htpasswd -nBC 12 USER, for each account", "%s has a bcrypt cost of %d, but another account has %d: all accounts must have the same cost", source, cost, s.cost)
	}
	s.cost = cost
	return nil
}

var errPassword = errors.New("a name and a password are required")

// check returns nil if the request has a known name and the right password, and errPassword if it doesn't. Any other
// error means that the password was not checked.
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
	if s.wasAccepted(header) { // accepted by a concurrent request
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

// find looks up an account by name. For an unknown name it returns some other account, so that the comparison takes
// the same amount of time.
func (s *accounts) find(name string) (found *account, known bool) {
	sum, found := sha256.Sum256([]byte(name)), s.all[0]
	for _, one := range s.all {
		if subtle.ConstantTimeCompare(sum[:], one.name[:]) == 1 {
			found, known = one, true
		}
	}
	return found, known
}

// refuseLogin answers a request for which check returned err.
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
	http.Error(w, "Too many logins are waiting. Try again in a few seconds.", status)
}

// askPassword answers with 401, which makes a browser prompt for a name and a password.
func askPassword(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="honker", charset="UTF-8"`)
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, "A name and a password are required.", http.StatusUnauthorized)
}

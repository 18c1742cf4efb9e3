package interop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
)

// pythonVar names the Python that has honker's package. Without it these tests are skipped:
// .ci/interop installs the package and sets it.
const pythonVar = "HONKER_PYTHON"

const (
	soon  = time.Minute     // for what should take milliseconds
	later = 2 * time.Minute // for what waits for a lease of seconds
)

// peer is a process with honker's Python package on the same file.
type peer struct {
	*testkit.Child
	t testing.TB
}

// startPeer runs testdata/peer.py in one of its roles, without waiting for a word of it.
func startPeer(t testing.TB, path, role string, args ...string) *peer {
	t.Helper()
	python := os.Getenv(pythonVar)
	if python == "" {
		t.Skip(pythonVar + " is not set: make interop installs honker's Python package and sets it")
	}
	cmd := exec.Command(python, append([]string{"testdata/peer.py", path, role}, args...)...)
	return &peer{testkit.StartCommand(t, "python "+role, cmd), t}
}

// readyPeer is startPeer for the roles that say when they are ready.
func readyPeer(t testing.TB, path, role string, args ...string) *peer {
	t.Helper()
	p := startPeer(t, path, role, args...)
	require.Equal(t, "ready", p.Line(soon))
	return p
}

// answer of a peer to a call.
type answer struct {
	Value any
	Error string
}

// ask calls a verb of the peer, in the role "answer". Its numbers are json.Number.
func (p *peer) ask(verb string, args ...any) (a answer) {
	p.t.Helper()
	call, err := json.Marshal(append([]any{verb}, args...))
	require.NoError(p.t, err)
	p.Tell(string(call))
	in := json.NewDecoder(bytes.NewBufferString(p.Line(soon)))
	in.UseNumber()
	require.NoError(p.t, in.Decode(&a))
	return a
}

// call is ask for what must succeed.
func (p *peer) call(verb string, args ...any) any {
	p.t.Helper()
	a := p.ask(verb, args...)
	require.Empty(p.t, a.Error, verb)
	return a.Value
}

// id is call for verbs that return one.
func (p *peer) id(verb string, args ...any) int64 {
	p.t.Helper()
	n, err := p.call(verb, args...).(json.Number).Int64()
	require.NoError(p.t, err)
	return n
}

// numbers reads n lines of a peer, each with a number.
func (p *peer) numbers(n int) (all []int) {
	p.t.Helper()
	for range n {
		var number int
		line := p.Line(soon)
		_, err := fmt.Sscan(line, &number)
		require.NoError(p.t, err, line)
		all = append(all, number)
	}
	return all
}

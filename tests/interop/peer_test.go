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

// pythonVar names the environment variable with the path of a Python that has honker's package. The
// tests are skipped if it is not set; .ci/interop installs the package and sets it.
const pythonVar = "HONKER_PYTHON"

const (
	soon  = time.Minute     // timeout for steps that take milliseconds
	later = 2 * time.Minute // timeout for steps that wait for a lease to expire
)

// peer is a process that runs honker's Python package on the file under test.
type peer struct {
	*testkit.Child
	t testing.TB
}

// startPeer runs testdata/peer.py in the given role. It does not wait for output.
func startPeer(t testing.TB, path, role string, args ...string) *peer {
	t.Helper()
	python := os.Getenv(pythonVar)
	if python == "" {
		t.Skip(pythonVar + " is not set: make interop installs honker's Python package and sets it")
	}
	cmd := exec.Command(python, append([]string{"testdata/peer.py", path, role}, args...)...)
	return &peer{testkit.StartCommand(t, "python "+role, cmd), t}
}

// readyPeer is like startPeer, but waits until the peer is ready. The role must report that.
func readyPeer(t testing.TB, path, role string, args ...string) *peer {
	t.Helper()
	p := startPeer(t, path, role, args...)
	require.Equal(t, "ready", p.Line(soon))
	return p
}

// answer is the reply of a peer to a call.
type answer struct {
	Value any
	Error string
}

// ask calls a verb of a peer in the role "answer". Numbers in the answer have type json.Number.
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

// call is like ask, but fails the test on an error.
func (p *peer) call(verb string, args ...any) any {
	p.t.Helper()
	a := p.ask(verb, args...)
	require.Empty(p.t, a.Error, verb)
	return a.Value
}

// id is like call, for verbs that return an id.
func (p *peer) id(verb string, args ...any) int64 {
	p.t.Helper()
	n, err := p.call(verb, args...).(json.Number).Int64()
	require.NoError(p.t, err)
	return n
}

// numbers reads n lines from the peer and parses each as a number.
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

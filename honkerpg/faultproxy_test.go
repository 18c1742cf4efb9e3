//go:build unix

package honkerpg_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// cutProxy stands between clients and a server. It ends the connection of a commit in so many, in turn: after the server
// has answered and before the client hears of it, before the server gets the commit, and while the commit is under way.
// A statement that commits by itself is a commit, too.
type cutProxy struct {
	listener net.Listener
	target   string // path of the server's socket
	in       int    // a commit in so many
	enabled  atomic.Bool
	once     atomic.Pointer[plannedCut] // nil for none
	cuts     [3]atomic.Int64
	turn     atomic.Int64
	running  sync.WaitGroup
	conns    sync.Map // of *cutConn
}

// The moments of a cut.
const (
	cutAnswered = iota
	cutUnsent
	cutUnderWay
)

// plannedCut is a cut at the commit of the next statement that contains text. Statements that are prepared do not.
type plannedCut struct {
	text string
	how  int
}

// newCutProxy starts a proxy before the server of dsn and returns its connection string.
func newCutProxy(t *testing.T, dsn string, in int) (*cutProxy, string) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/tmp", "honkercut")
	require.NoError(t, err)
	p := &cutProxy{target: filepath.Join(config.Host, ".s.PGSQL.5432"), in: in}
	p.listener, err = net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	require.NoError(t, err)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		require.NoError(t, p.listener.Close())
		p.conns.Range(func(c, _ any) bool { c.(*cutConn).close(); return true }) // of a test that has failed
		p.running.Wait()
		require.NoError(t, os.RemoveAll(dir))
	})
	return p, "host=" + dir + " user=" + config.User + " dbname=" + config.Database
}

func (p *cutProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			client.Close()
			continue
		}
		c := &cutConn{proxy: p, client: client, server: server}
		p.conns.Store(c, nil)
		p.running.Go(c.requests)
		p.running.Go(c.answers)
	}
}

// cutConn is a connection of a client through the proxy.
type cutConn struct {
	proxy          *cutProxy
	client, server net.Conn
	inTx           atomic.Bool // the server said so when it was last ready
	swallow        atomic.Bool // the answer to the message that was sent last
}

func (c *cutConn) close() {
	c.proxy.conns.Delete(c)
	c.client.Close()
	c.server.Close()
}

// requests passes on the client's messages.
func (c *cutConn) requests() {
	defer c.close()
	if _, err := io.Copy(c.server, &startup{r: c.client}); err != nil {
		return
	}
	executes := false
	var texts []byte // of the statements that commit together
	for {
		m, err := message(c.client)
		if err != nil {
			return
		}
		commit := m[0] == 'Q' && bytes.HasPrefix(bytes.ToLower(m[5:]), []byte("commit")) || m[0] == 'S' && executes && !c.inTx.Load()
		switch m[0] {
		case 'P':
			texts = append(texts, m...)
		case 'E':
			executes = true
		}
		if commit {
			if how, cuts := c.proxy.cutsNow(texts); cuts {
				c.cut(m, how)
				return
			}
			texts = nil
		}
		if m[0] == 'S' {
			executes = false
		}
		if _, err := c.server.Write(m); err != nil {
			return
		}
	}
}

// cutsNow decides whether and how to cut at a commit of statements.
func (p *cutProxy) cutsNow(texts []byte) (how int, cuts bool) {
	plan := p.once.Load()
	if plan != nil && bytes.Contains(texts, []byte(plan.text)) && p.once.CompareAndSwap(plan, nil) {
		return plan.how, true
	}
	return int(p.turn.Add(1)) % len(p.cuts), p.enabled.Load() && rand.IntN(p.in) == 0
}

// cut ends the connection at the commit m.
func (c *cutConn) cut(m []byte, how int) {
	c.proxy.cuts[how].Add(1)
	switch how {
	case cutAnswered:
		c.swallow.Store(true)
		if _, err := c.server.Write(m); err == nil {
			_, _ = c.client.Read(make([]byte, 1)) // until answers closes the connection
		}
	case cutUnderWay:
		_, _ = c.server.Write(m)
	}
}

// answers passes on the server's messages. It ends the connection once an answer that must not arrive is complete.
func (c *cutConn) answers() {
	defer c.close()
	for {
		m, err := message(c.server)
		if err != nil {
			return
		}
		ready := m[0] == 'Z'
		if ready {
			c.inTx.Store(m[5] != 'I')
		}
		if c.swallow.Load() {
			if ready {
				return
			}
			continue
		}
		if _, err := c.client.Write(m); err != nil {
			return
		}
	}
}

// startup reads the first message of a client, which has no type.
type startup struct {
	r    io.Reader
	rest []byte
	read bool
}

func (s *startup) Read(p []byte) (int, error) {
	if !s.read {
		s.read = true
		size := make([]byte, 4)
		if _, err := io.ReadFull(s.r, size); err != nil {
			return 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(size)-4)
		if _, err := io.ReadFull(s.r, body); err != nil {
			return 0, err
		}
		s.rest = append(size, body...)
	}
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// message reads a message with its type and its length.
func message(r io.Reader) ([]byte, error) {
	m := make([]byte, 5)
	if _, err := io.ReadFull(r, m); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(m[1:])-4)
	_, err := io.ReadFull(r, body)
	return append(m, body...), err
}

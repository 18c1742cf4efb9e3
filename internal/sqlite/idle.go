package sqlite

import (
	"context"
	"database/sql/driver"
	"sync"
)

// The use of a connection in a pool. A connection that is unused can be closed at any time. Its pool finds out when it
// takes the connection for the next use, and opens another.
const (
	used int32 = iota
	unused
	closed
)

// pooled is the set of connections of a Connector's pools.
type pooled struct {
	mu    sync.Mutex
	conns map[*conn]struct{}
}

func (p *pooled) add(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		p.conns = map[*conn]struct{}{}
	}
	p.conns[c] = struct{}{}
}

func (p *pooled) remove(c *conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// takeUnused marks unused connections as closed, but leaves keep connections open. The caller must close them.
func (p *pooled) takeUnused(keep int) (taken []*conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if len(p.conns) <= keep {
			break
		}
		if c.use.CompareAndSwap(unused, closed) {
			delete(p.conns, c)
			taken = append(taken, c)
		}
	}
	return taken
}

// Pooled returns a connector for pools whose unused connections CloseUnused can close. It calls opening before it
// opens a connection.
func (c *Connector) Pooled(opening func()) driver.Connector { return pools{c, opening} }

type pools struct {
	*Connector
	opening func()
}

// Connect implements driver.Connector.
func (p pools) Connect(ctx context.Context) (driver.Conn, error) {
	p.opening()
	connected, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	p.pooled.add(connected.(*conn))
	return connected, nil
}

// OpenConns returns the number of open connections of pools.
func (c *Connector) OpenConns() int {
	c.pooled.mu.Lock()
	defer c.pooled.mu.Unlock()
	return len(c.pooled.conns)
}

// InUse reports whether a connection of pools is in use.
func (c *Connector) InUse() bool {
	c.pooled.mu.Lock()
	defer c.pooled.mu.Unlock()
	for conn := range c.pooled.conns {
		if conn.use.Load() == used {
			return true
		}
	}
	return false
}

// CloseUnused closes the unused connections of pools, but leaves keep connections open. It returns how many it closed.
func (c *Connector) CloseUnused(keep int) int {
	taken := c.pooled.takeUnused(keep)
	for _, conn := range taken {
		_ = conn.release()
	}
	return len(taken)
}

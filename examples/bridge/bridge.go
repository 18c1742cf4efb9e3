package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
)

// Names of the nodes. Each node runs in its own process.
const (
	shopNode      = "shop"
	warehouseNode = "warehouse"
)

// bridge starts and kills the two nodes. It opens their databases only to measure progress and
// never copies data between them.
type bridge struct {
	config
	secret, socket  string
	shop, warehouse *honker.DB
	nodes           map[string]*node
	w               io.Writer
}

func pathOf(dir, name string) string { return filepath.Join(dir, name+".db") }

// open creates both databases with their tables. It does not start the nodes.
func open(ctx context.Context, c config, socket string, w io.Writer) (b *bridge, err error) {
	b = &bridge{config: c, socket: socket, nodes: make(map[string]*node), w: w}
	key := make([]byte, 24)
	_, _ = rand.Read(key) // never returns an error
	b.secret = "whsec_" + base64.StdEncoding.EncodeToString(key)
	if b.shop, err = openNode(ctx, c.dir, shopNode, shopSchema); err != nil {
		return nil, err
	}
	if b.warehouse, err = openNode(ctx, c.dir, warehouseNode, warehouseSchema); err != nil {
		return nil, errors.Join(err, b.shop.Close())
	}
	return b, nil
}

// openNode opens the database of a node and creates its tables.
func openNode(ctx context.Context, dir, name, schema string) (*honker.DB, error) {
	db, err := honker.Open(ctx, pathOf(dir, name), &honker.Options{Logger: quiet()})
	if err != nil {
		return nil, err
	}
	if _, err := db.SQL().ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("create tables of the %s: %w", name, err), db.Close())
	}
	return db, nil
}

// close kills the nodes that are still running and closes both databases.
func (b *bridge) close() error {
	for _, n := range b.nodes {
		n.kill()
	}
	return errors.Join(b.shop.Close(), b.warehouse.Close())
}

// run starts both nodes and kills them in turn. It stops them once every order is packed.
func (b *bridge) run(ctx context.Context) error {
	for _, name := range []string{warehouseNode, shopNode} {
		if err := b.start(name); err != nil {
			return err
		}
	}
	for k := 1; k <= b.kills; k++ {
		goal := k * b.orders / (b.kills + 1)
		if err := b.until(ctx, func(p progress) bool { return p.received >= goal }); err != nil {
			return err
		}
		if err := b.restart(ctx, []string{shopNode, warehouseNode}[k%2]); err != nil {
			return err
		}
	}
	err := b.until(ctx, func(p progress) bool {
		return p.orders >= b.orders && p.received >= p.orders && p.packed >= p.received && p.waiting == 0
	})
	for _, n := range b.nodes {
		err = errors.Join(err, n.end())
	}
	return err
}

// restart kills a node, as a crash would, and starts it again.
func (b *bridge) restart(ctx context.Context, name string) error {
	p, err := b.readProgress(ctx)
	if err != nil {
		return err
	}
	b.nodes[name].kill()
	fmt.Fprintf(b.w, "kill %-9s  %4d ordered  %4d received  %4d packed\n", name, p.orders, p.received, p.packed)
	return b.start(name)
}

// until polls the progress until done returns true. It fails if a node exits in the meantime.
func (b *bridge) until(ctx context.Context, done func(progress) bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := b.readProgress(ctx)
		if err != nil || done(p) {
			return err
		}
		for _, n := range b.nodes {
			if n.hasEnded() {
				return fmt.Errorf("%s: %w", n.name, errors.Join(n.err, errEnded))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var errEnded = errors.New("process exited without being stopped")

// node is a running process.
type node struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer // closing it makes the process exit
	ended chan struct{}
	err   error // set before ended is closed
}

// secretVar is the environment variable with the shared secret. A flag would be visible to other
// users.
const secretVar = "BRIDGE_SECRET"

// start runs this program again as the named node.
func (b *bridge) start(name string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	n := &node{name: name, ended: make(chan struct{})}
	n.cmd = exec.Command(program, nodeCommand, "-name", name, "-dir", b.dir, "-socket", b.socket,
		"-orders", fmt.Sprint(b.orders), "-rate", fmt.Sprint(b.rate), "-lease", b.lease.String())
	n.cmd.Env = append(os.Environ(), secretVar+"="+b.secret)
	n.cmd.Stderr = os.Stderr
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	go func() {
		n.err = n.cmd.Wait()
		close(n.ended)
	}()
	b.nodes[name] = n
	return nil
}

func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	<-n.ended
}

// end closes the node's stdin and waits for the process to exit.
func (n *node) end() error {
	_ = n.stdin.Close()
	<-n.ended
	if n.err != nil {
		return fmt.Errorf("%s: %w", n.name, n.err)
	}
	return nil
}

func (n *node) hasEnded() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

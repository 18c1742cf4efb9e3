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

// The nodes, which are processes of their own.
const (
	shopNode      = "shop"
	warehouseNode = "warehouse"
)

// bridge starts and kills the two nodes. It opens their databases to see how far they are, and
// carries nothing from one to the other.
type bridge struct {
	config
	secret, socket  string
	shop, warehouse *honker.DB
	nodes           map[string]*node
	w               io.Writer
}

func pathOf(dir, name string) string { return filepath.Join(dir, name+".db") }

func open(ctx context.Context, c config, socket string, w io.Writer) (b *bridge, err error) {
	b = &bridge{config: c, socket: socket, nodes: make(map[string]*node), w: w}
	key := make([]byte, 24)
	_, _ = rand.Read(key) // it never fails
	b.secret = "whsec_" + base64.StdEncoding.EncodeToString(key)
	if b.shop, err = openNode(ctx, c.dir, shopNode, shopSchema); err != nil {
		return nil, err
	}
	if b.warehouse, err = openNode(ctx, c.dir, warehouseNode, warehouseSchema); err != nil {
		return nil, errors.Join(err, b.shop.Close())
	}
	return b, nil
}

// openNode opens the database of a node, with its tables.
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

// close kills what still runs.
func (b *bridge) close() error {
	for _, n := range b.nodes {
		n.kill()
	}
	return errors.Join(b.shop.Close(), b.warehouse.Close())
}

// run lets the orders cross, kills a node now and then, and ends both when all orders are packed.
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

// restart kills a node as a crash would, and starts it again.
func (b *bridge) restart(ctx context.Context, name string) error {
	p, err := b.readProgress(ctx)
	if err != nil {
		return err
	}
	b.nodes[name].kill()
	fmt.Fprintf(b.w, "kill %-9s  %4d ordered  %4d received  %4d packed\n", name, p.orders, p.received, p.packed)
	return b.start(name)
}

// until looks until done, as long as both nodes live.
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
				return fmt.Errorf("the %s has ended by itself: %w", n.name, errors.Join(n.err, errEnded))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var errEnded = errors.New("nothing has told it to")

// node is a process.
type node struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer // its end tells the process to end
	ended chan struct{}
	err   error // once it has ended
}

// secretVar passes the secret to the nodes: a flag could be read by other users.
const secretVar = "BRIDGE_SECRET"

// start starts this program again, as a node.
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

// end waits for the end of a node that is told to.
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

package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// DependencyNode is a job or a batch in a [DependencyGraph].
type DependencyNode struct {
	ID    int64 // of the job or batch
	Level int   // edges from the job that the graph is about; negative if that job depends on the node
	// Job is nil for a batch, and for a job that the file no longer contains because it is done, cancelled or
	// discarded.
	Job   *honker.JobInfo
	Batch *BatchInfo // nil for a job
}

// DependencyEdge says that the node To waits for the node From, or that the batch To has the member From.
type DependencyEdge struct {
	From, To int  // indexes in DependencyGraph.Nodes
	Dead     bool // From is dead, so To stays held
	Done     bool // To no longer waits for From
}

// DependencyGraph contains a job and the jobs and batches near it, sorted by level and ID.
type DependencyGraph struct {
	Nodes []DependencyNode
	Edges []DependencyEdge
	More  bool // nodes were omitted, because a job or a level has too many
}

// Bounds on a DependencyGraph.
const (
	maxLevels     = 5
	nodesPerLevel = 8
)

// Dependencies returns the jobs and batches that the job with the given ID waits for, and those that wait for it, up to
// levels edges away (see [honker.After] and [honker.AfterBatch]). It returns at most eight nodes of a level, the
// dead ones first. A dependency that is done is included until the waiting job has ended.
//
// Dependencies reads a single snapshot and never waits for the writer. An unknown ID results in a graph with that node
// alone. It returns [honker.ErrInvalid] if levels is not from 1 to 5 or db is nil.
func Dependencies(ctx context.Context, db *honker.DB, id int64, levels int) (*DependencyGraph, error) {
	if levels < 1 || levels > maxLevels {
		return nil, engine.WrapID("list dependencies of job", id, fmt.Errorf("%w: levels must be from 1 to %d, but is %d", honker.ErrInvalid, maxLevels, levels))
	}
	g := &graphReader{}
	err := explain(ctx, db, func(ctx context.Context, x *explainer) error {
		*g = graphReader{explainer: x, level: map[int64]int{id: 0}, edges: map[[2]int64]row.Neighbor{}}
		return g.read(ctx, id, levels)
	})
	if err != nil {
		return nil, engine.WrapID("list dependencies of job", id, err)
	}
	return g.out, nil
}

// graphReader reads a graph from a snapshot. Its nodes are job IDs and negated batch IDs.
type graphReader struct {
	*explainer
	level map[int64]int
	edges map[[2]int64]row.Neighbor // keyed by the node that is waited for and the node that waits
	out   *DependencyGraph
}

func (g *graphReader) read(ctx context.Context, id int64, levels int) error {
	g.out = &DependencyGraph{}
	for _, direction := range []int{-1, 1} {
		from := []int64{id}
		for level := direction; level >= -levels && level <= levels; level += direction {
			var err error
			if from, err = g.expand(ctx, from, level, direction); err != nil {
				return err
			}
		}
	}
	if err := g.nodes(ctx); err != nil {
		return err
	}
	g.link()
	return nil
}

// expand adds the neighbors of some nodes in a direction. It returns the nodes that are new.
func (g *graphReader) expand(ctx context.Context, from []int64, level, direction int) (added []int64, err error) {
	for _, node := range from {
		before, after, err := g.stores.Operators.Edges(ctx, g.q, node, nodesPerLevel+1)
		if err != nil {
			return nil, err
		}
		near := before
		if direction > 0 {
			near = after
		}
		for _, n := range near {
			if _, known := g.level[n.Node]; !known {
				if len(added) == nodesPerLevel {
					g.out.More = true
					continue
				}
				g.level[n.Node] = level
				added = append(added, n.Node)
			}
			edge := [2]int64{n.Node, node}
			if direction > 0 {
				edge = [2]int64{node, n.Node}
			}
			g.edges[edge] = n
		}
	}
	return added, nil
}

// nodes reads the jobs and batches.
func (g *graphReader) nodes(ctx context.Context) error {
	for node, level := range g.level {
		n := DependencyNode{ID: max(node, -node), Level: level}
		if node < 0 {
			b, found, err := g.stores.Batches.Get(ctx, g.q, -node, g.now)
			if err != nil {
				return err
			}
			info := BatchInfo{ID: -node}
			if found {
				info = batchInfo(&b)
			}
			n.Batch = &info
		} else {
			j, found, err := g.stores.Jobs.Find(ctx, g.q, node, "")
			if err != nil {
				return err
			}
			if found {
				job := engine.View().Job(j, g.now, g.codec).(honker.JobInfo)
				n.Job = &job
			}
		}
		g.out.Nodes = append(g.out.Nodes, n)
	}
	slices.SortFunc(g.out.Nodes, func(a, b DependencyNode) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.ID, b.ID), cmp.Compare(a.key(), b.key()))
	})
	return nil
}

// key returns the job ID or the negated batch ID.
func (n *DependencyNode) key() int64 {
	if n.Batch != nil {
		return -n.ID
	}
	return n.ID
}

// link converts the edges to indexes.
func (g *graphReader) link() {
	at := map[int64]int{}
	for i, n := range g.out.Nodes {
		at[n.key()] = i
	}
	for edge, n := range g.edges {
		g.out.Edges = append(g.out.Edges, DependencyEdge{From: at[edge[0]], To: at[edge[1]], Dead: n.Dead, Done: n.Done})
	}
	slices.SortFunc(g.out.Edges, func(a, b DependencyEdge) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
}

package namespace

import (
	"iter"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

// Usage is what a part of the tree holds.
type Usage struct {
	Nodes int   `cbor:"1,keyasint,omitempty"`
	Bytes int64 `cbor:"2,keyasint,omitempty"` // of contents
}

func (u Usage) plus(nodes int, bytes int64) Usage {
	return Usage{Nodes: u.Nodes + nodes, Bytes: u.Bytes + bytes}
}

// Quota bounds what may be below a directory, and counts it. A Quota that is in
// a tree never changes.
type Quota struct {
	Limit Usage `cbor:"1,keyasint"` // a field that is 0 sets no limit
	Used  Usage `cbor:"2,keyasint"`
}

// Usage returns how much the existing nodes that a principal created use.
func (t Tree) Usage(creator string) Usage {
	u, _ := t.usage.Get(creator)
	return u
}

// Creators returns the principals that created existing nodes, by name, beginning behind the name
// after.
func (t Tree) Creators(after string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for creator := range t.usage.From(after) {
			if creator != after && !yield(creator) {
				return
			}
		}
	}
}

// SetQuota bounds what may be below a directory; the zero Usage removes the
// quota. What is there already stays, even if it is more. The errors are
// HandleClosed, NotDirectory and InvalidArgument. It reads everything below the
// directory.
func (t *Tree) SetQuota(ref Ref, limit Usage) (*Node, error) {
	n, err := t.Resolve(ref)
	switch {
	case err != nil:
		return nil, err
	case n.Kind != api.Directory:
		return nil, &refusal.Refusal{Cause: refusal.QuotaOfFile}
	case limit.Nodes < 0 || limit.Bytes < 0:
		return nil, &refusal.Refusal{Cause: refusal.QuotaNegativeBelow, Quota: &api.Quota{Nodes: limit.Nodes, Bytes: limit.Bytes}}
	}
	next := *n
	next.Quota = nil
	if limit != (Usage{}) {
		next.Quota = &Quota{Limit: limit, Used: t.below(n)}
	}
	t.replace(n, &next, 0)
	return &next, nil
}

// below counts everything below a directory.
func (t Tree) below(dir *Node) Usage {
	var u Usage
	for child := range t.Children(dir.Name, "") {
		u = u.plus(1, int64(len(child.Contents)))
		//mutants: same (it only saves work)
		if child.Children > 0 {
			deeper := t.below(child)
			u = u.plus(deeper.Nodes, deeper.Bytes)
		}
	}
	return u
}

// CheckQuota returns QuotaExceeded if more would exceed the quota of a directory above the name,
// and InvalidArgument for an invalid name.
func (t Tree) CheckQuota(name api.Name, more Usage) error {
	//mutants: same (it only saves work)
	if err := CheckName(name); err != nil || t.counts.Limited == 0 {
		return err
	}
	for at := name; at != ""; {
		at = at.Parent()
		dir, ok := t.Get(at)
		if !ok || dir.Quota == nil {
			continue
		}
		if r := dir.Quota.Limit.Check(dir.Quota.Used, more, refusal.NodeQuotaBelow, refusal.ByteQuotaBelow); r != nil {
			r.Name = at
			return r
		}
	}
	return nil
}

// Check returns a refusal if used and more together exceed the limit: with the cause nodes for too
// many nodes, or bytes for too many bytes. The caller adds whose limit it is.
func (u Usage) Check(used, more Usage, nodes, bytes refusal.Cause) *refusal.Refusal {
	switch {
	case more.Nodes > 0 && u.Nodes > 0 && used.Nodes+more.Nodes > u.Nodes:
		return &refusal.Refusal{Cause: nodes, Used: int64(used.Nodes), Allowed: int64(u.Nodes)}
	case more.Bytes > 0 && u.Bytes > 0 && used.Bytes+more.Bytes > u.Bytes:
		return &refusal.Refusal{Cause: bytes, Used: used.Bytes, Allowed: u.Bytes, More: more.Bytes}
	}
	return nil
}

// charge adds a change of what a node holds to the usage of its creator and of
// every directory above it that has a quota.
func (t *Tree) charge(n *Node, nodes int, bytes int64) {
	//mutants: same (it only saves work)
	if nodes == 0 && bytes == 0 {
		//mutants: same (it only saves work)
		return
	}
	if used := t.Usage(n.Creator).plus(nodes, bytes); used == (Usage{}) {
		t.usage.Delete(n.Creator)
	} else {
		t.usage.Set(n.Creator, used)
	}
	//mutants: same (it only saves work)
	for at := n.Name; at != "" && t.counts.Limited > 0; {
		at = at.Parent()
		dir, ok := t.Get(at)
		//mutants: same (each node is in a directory)
		if !ok || dir.Quota == nil {
			continue
		}
		next := *dir
		next.Quota = &Quota{Limit: dir.Quota.Limit, Used: dir.Quota.Used.plus(nodes, bytes)}
		t.nodes.Set(keyOf(at), &next)
	}
}

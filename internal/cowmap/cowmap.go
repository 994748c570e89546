// Package cowmap is a sorted map that is a value: a copy of it is a snapshot, taken in
// constant time, and later changes of either are not seen in the other. It is a B-tree
// whose nodes are copied when they change.
//
// A map for which Edit was called changes in place what it has copied since, so many
// changes copy each node once. Such a map must not be copied; Snapshot takes a snapshot
// of it.
//
// A snapshot may be read by any number of goroutines while one goroutine changes the
// original. A map must not be changed inside of a loop over it.
package cowmap

import (
	"iter"

	"github.com/tidwall/btree"
)

// degree is half of the largest number of entries in a node. With 64 changes between two
// snapshots, of 10,000 entries, smaller nodes take more allocations and larger ones more
// bytes, and neither is faster.
const degree = 16

// Map is a sorted map. The zero Map is not usable; New makes one.
type Map[K, V any] struct {
	tree *btree.BTreeG[entry[K, V]]
	own  bool // no other Map has the same tree, and there is no snapshot of its nodes that Map may change in place
}

type entry[K, V any] struct {
	key   K
	value V
}

// New returns an empty map with that order of keys.
func New[K, V any](less func(a, b K) bool) Map[K, V] {
	byKey := func(a, b entry[K, V]) bool { return less(a.key, b.key) }
	return Map[K, V]{tree: btree.NewBTreeGOptions(byKey, btree.Options{NoLocks: true, Degree: degree})}
}

// Edit begins a time in which changes are made in place.
func (m *Map[K, V]) Edit() {
	if !m.own {
		m.fork()
		m.own = true
	}
}

// Settle ends what Edit began: from now on a copy of the map is a snapshot again.
func (m *Map[K, V]) Settle() { m.own = false }

// Snapshot returns the map as it is now. m itself goes on as it was.
func (m *Map[K, V]) Snapshot() Map[K, V] {
	if !m.own {
		return *m
	}
	//mutant: return *m //by TestMapAgainstPlainMap of ./internal/cowmap
	return Map[K, V]{tree: m.tree.Copy()}
}

// fork gives m a tree of its own, whose nodes are copied before they change.
func (m *Map[K, V]) fork() {
	tree := *m.tree // Copy changes its receiver, which others may read
	m.tree = tree.Copy()
}

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return m.tree.Len() }

// Get returns the value of a key.
func (m Map[K, V]) Get(k K) (V, bool) {
	e, ok := m.tree.Get(entry[K, V]{key: k})
	return e.value, ok
}

// Set adds an entry, or replaces that of the same key.
func (m *Map[K, V]) Set(k K, v V) {
	if !m.own {
		m.fork()
	}
	m.tree.Set(entry[K, V]{key: k, value: v})
}

// Delete removes the entry of a key and returns its value.
func (m *Map[K, V]) Delete(k K) (V, bool) {
	if !m.own {
		m.fork()
	}
	e, ok := m.tree.Delete(entry[K, V]{key: k})
	return e.value, ok
}

// All returns the entries by key.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		m.tree.Scan(func(e entry[K, V]) bool { return yield(e.key, e.value) })
	}
}

// From returns the entries whose keys are first or later, by key. It does not pass through
// those before.
func (m Map[K, V]) From(first K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		m.tree.Ascend(entry[K, V]{key: first}, func(e entry[K, V]) bool { return yield(e.key, e.value) })
	}
}

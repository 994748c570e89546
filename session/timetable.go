package session

import "container/heap"

// Timetable orders keys by the Instants at which they are due. The zero
// Timetable is empty. Put and Drop take O(log n), the others O(1). It is not
// safe for concurrent use.
type Timetable[K comparable] struct {
	byKey map[K]*appointment[K]
	queue appointments[K]
}

// appointment is a key that is due, and its place in the heap.
type appointment[K comparable] struct {
	key   K
	at    Instant
	place int
}

// Put sets when a key is due, and replaces what was set before.
func (t *Timetable[K]) Put(key K, at Instant) {
	if one, ok := t.byKey[key]; ok {
		one.at = at
		heap.Fix(&t.queue, one.place)
		return
	}
	if t.byKey == nil {
		t.byKey = map[K]*appointment[K]{}
	}
	one := &appointment[K]{key: key, at: at}
	t.byKey[key] = one
	heap.Push(&t.queue, one)
}

// Drop removes a key.
func (t *Timetable[K]) Drop(key K) {
	if one, ok := t.byKey[key]; ok {
		heap.Remove(&t.queue, one.place)
		delete(t.byKey, key)
	}
}

// At returns when a key is due.
func (t *Timetable[K]) At(key K) (at Instant, ok bool) {
	one, ok := t.byKey[key]
	if !ok {
		return 0, false
	}
	return one.at, true
}

// Next returns the key that is due first.
func (t *Timetable[K]) Next() (key K, at Instant, ok bool) {
	if len(t.queue) == 0 {
		//mutants: same (all are zero)
		return key, 0, false
	}
	return t.queue[0].key, t.queue[0].at, true
}

// Len returns the number of keys.
func (t *Timetable[K]) Len() int { return len(t.queue) }

// Clear removes every key.
func (t *Timetable[K]) Clear() { *t = Timetable[K]{} }

// appointments is a heap, the earliest first. Its methods are those of
// heap.Interface; each appointment knows its place.
type appointments[K comparable] []*appointment[K]

func (q appointments[K]) Len() int           { return len(q) }
func (q appointments[K]) Less(i, j int) bool { return q[i].at < q[j].at } //mutants: same (nobody asks for an order of equals)

func (q appointments[K]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is for package heap.
func (q *appointments[K]) Push(x any) {
	one := x.(*appointment[K])
	one.place = len(*q)
	*q = append(*q, one)
}

// Pop is for package heap.
func (q *appointments[K]) Pop() any {
	last := len(*q) - 1
	one := (*q)[last]
	//mutants: same (only memory is given back)
	(*q)[last] = nil
	*q = (*q)[:last]
	//mutants: same (package heap wants it, and nobody reads it)
	return one
}

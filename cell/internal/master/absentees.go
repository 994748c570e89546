package master

import (
	"container/heap"

	"github.com/chubbylock/chubby/session"
)

// absentees is a heap of the waiters without a stream, by the ends of their places. Len to Pop implement
// heap.Interface.
type absentees []*waiter

// put keeps the place of an absent waiter until then.
func (a *absentees) put(w *waiter, until session.Instant) {
	w.keep = until
	if w.absent {
		heap.Fix(a, w.heaped)
		return
	}
	w.absent = true
	heap.Push(a, w)
}

// drop removes a waiter that has returned or left.
func (a *absentees) drop(w *waiter) {
	if w.absent {
		heap.Remove(a, w.heaped)
	}
}

func (a absentees) Len() int           { return len(a) }
func (a absentees) Less(i, j int) bool { return a[i].keep < a[j].keep }

func (a absentees) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].heaped, a[j].heaped = i, j
}

func (a *absentees) Push(x any) {
	w := x.(*waiter)
	w.heaped = len(*a)
	*a = append(*a, w)
}

func (a *absentees) Pop() any {
	last := len(*a) - 1
	w := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	w.absent = false
	return w
}

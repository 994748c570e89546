// Package rules has something for each rule that makes mutants, and forms of Go that a mutant must not
// break.
package rules

import (
	"errors"
	"sync"
)

type queue[T any] struct {
	mu    sync.Mutex
	items []T
	full  func()
}

type limit struct {
	most  int
	of    *limit
	exact bool
}

func newLimit(most int) limit { return limit{most: most, of: &limit{most: 2 * most}, exact: true} }

func (q *queue[T]) push(item T, l limit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.exact && len(q.items) >= l.most || len(q.items) > l.most {
		q.full()
		return false
	}
	q.items = append(q.items, item)
	return true
}

func (q *queue[T]) first() (item T, err error) {
	if len(q.items) == 0 {
		err = errors.New("empty")
		return
	}
	return q.items[0], nil
}

func between(low, n, high int) int { return max(low, min(n, high)) }

func sum(list []int) (total int) {
next:
	for i := range list {
		switch {
		case list[i] < 0:
			continue next
		case list[i] == 99:
			break next
		}
		total += list[i]
	}
	return total
}

func later(n uint8) <-chan uint8 {
	out := make(chan uint8, 1)
	go func() {
		out <- 1<<n |
			n&^1 // a comment within an expression
	}()
	return out
}

type name string

func (n name) String() string { return "n:" + string(n) }

// unused has no test.
func unused(n int) int {
	n++
	return n
}

package rules

import "testing"

func TestPush(t *testing.T) {
	full := 0
	q := &queue[string]{full: func() { full++ }}
	l := newLimit(1)
	if !q.push("a", l) || q.push("b", l) || full != 1 || l.of.most != 2 {
		t.Error(q.items, full, l.of)
	}
	if one, err := q.first(); one != "a" || err != nil {
		t.Error(one, err)
	}
}

func TestEmpty(t *testing.T) {
	if _, err := (&queue[int]{}).first(); err == nil {
		t.Error("an empty queue has a first item")
	}
}

func TestBetween(t *testing.T) {
	if between(1, 0, 3) != 1 || between(1, 2, 3) != 2 {
		t.Error("not between 1 and 3")
	}
}

func TestSum(t *testing.T) {
	if got := sum([]int{1, -5, 2, 99, 4}); got != 3 {
		t.Error(got)
	}
}

func TestLater(t *testing.T) {
	if got := <-later(2); got != 6 {
		t.Error(got)
	}
}

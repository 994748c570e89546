package recipetest

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// Listener writes down what a sequence yields, in the background.
type Listener[T any] struct {
	stop context.CancelFunc
	done chan struct{} // closed when err is set
	err  error         // of the sequence
	own  bool          // the sequence has ended by itself, and no test has asked

	mu    sync.Mutex // guards heard
	heard []T
}

// Listen ranges over a sequence until End, or until the end of the test, which fails if the sequence has ended by
// itself, and End was not called.
func Listen[T any](w *World, sequence func(ctx context.Context) iter.Seq2[T, error]) *Listener[T] {
	ctx, stop := context.WithCancel(w.Ctx)
	l := &Listener[T]{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for one, err := range sequence(ctx) {
			if err != nil {
				l.err, l.own = err, ctx.Err() == nil
				return
			}
			l.mu.Lock()
			l.heard = append(l.heard, one)
			l.mu.Unlock()
		}
	}()
	w.T.Cleanup(func() {
		stop()
		<-l.done
		if l.own {
			w.T.Errorf("the sequence has ended: %v", l.err)
		}
	})
	return l
}

// End ends the sequence, which may have ended by itself, and returns its error.
func (l *Listener[T]) End() error {
	l.stop()
	<-l.done
	l.own = false
	return l.err
}

// Heard returns what was yielded since the last call, when all has come to rest.
func (l *Listener[T]) Heard() []T {
	Pass(time.Second)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	heard := l.heard
	l.heard = nil
	return heard
}

// Words returns the same as text.
func (l *Listener[T]) Words(text func(T) string, between string) string {
	var words []string
	for _, one := range l.Heard() {
		words = append(words, text(one))
	}
	return strings.Join(words, between)
}

// Package carried has what seqgrpc and seqhttp do alike with the sequencer that a request carries.
package carried

import (
	"context"
	"fmt"

	"github.com/chubbylock/chubby/sequencer"
)

// Text returns what a client sends: the result of source, or, without one, the sequencer of the lock under
// whose context the request is made. It is "" if no lock is held.
func Text(ctx context.Context, source func() string) string {
	if source != nil {
		return source()
	}
	s, _ := sequencer.FromContext(ctx)
	return s.String()
}

// Fault says what is wrong with the sequencers of a request, which is to carry exactly one, and counts it; "" if
// nothing is. what is the request, and where the place for the sequencer, in words.
func Fault(guard *sequencer.Guard, values []string, what, where string) string {
	switch n := len(values); n {
	case 1:
		return ""
	case 0:
		guard.CountMissing()
		return fmt.Sprintf("the %s carries no sequencer: send the one that came with the lock %s", what, where)
	default:
		guard.CountMissing()
		return fmt.Sprintf("the %s carries %d sequencers: send exactly one %s", what, n, where)
	}
}

// Admit runs serve in a section of the lock that the text names (sequencer.Guard.Do), and reports whether it
// ran: then the error is its own.
func Admit(ctx context.Context, guard *sequencer.Guard, text string, serve func(context.Context) error) (served bool, err error) {
	err = guard.Do(ctx, text, func(ctx context.Context) error {
		served = true
		return serve(ctx)
	})
	return served, err
}

// Inside runs an operation of a section that may wait for the peer of a request, and returns its result. It
// returns false, and leaves the operation behind, if the section's context ends first; after that it runs
// none. The operation left behind must end by itself once the section has.
func Inside[T any](ctx context.Context, operation func() T) (result T, inside bool) {
	if ctx.Err() != nil {
		return result, false
	}
	done := make(chan T, 1)
	go func() { done <- operation() }()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
		return result, false
	}
}

package sequencer

import "context"

// Source is what has a sequencer, such as a lock of package client. Sequencer may be
// called from several goroutines.
type Source interface{ Sequencer() Sequencer }

type contextKey struct{}

// NewContext returns a context for work under a lock, in which FromContext finds the
// sequencer of that lock, and so do the client interceptors of seqgrpc and the
// Transport of seqhttp. The contexts of package client's locks are such contexts
// (Lock.Context, Lock.With). nil hides the sequencer of ctx: it is for work under
// several locks, of which each server is to be sent its own.
func NewContext(ctx context.Context, of Source) context.Context {
	return context.WithValue(ctx, contextKey{}, of)
}

// FromContext returns the sequencer that goes with the work in ctx: in a request that a
// Guard runs, that of the request; in the context of a lock, or in one made from that,
// that of the lock, also when the lock has been lost since. It is false if there is
// none. Of contexts within each other, the innermost counts.
func FromContext(ctx context.Context) (Sequencer, bool) {
	switch of := ctx.Value(contextKey{}).(type) {
	case Sequencer: // Guard.Do
		return of, true
	case Source:
		return of.Sequencer(), true
	}
	return Sequencer{}, false
}

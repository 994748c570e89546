package recipe

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// Revocable is an exclusive lock whose holder lets go of it when another asks for it: for work that
// can be put off, beside work that cannot. The request is polite: the cell tells the holder that
// somebody waits, and for what, and takes nothing away; a holder that does not heed it keeps the lock. (An operator's chubbyctl lock
// break is not polite.)
//
// Release it, also when it was lost. Its methods may be called from several goroutines.
type Revocable struct {
	hold
	ctx    context.Context //nolint:containedctx // of the work under the lock, as that of client.Lock
	end    context.CancelCauseFunc
	asked  chan struct{} // closed when reason is set
	reason string
	listen sync.WaitGroup // the goroutine that hears of requests
}

// RevocableOptions are those of AcquireRevocable.
type RevocableOptions struct {
	// LockDelay is how long nobody may have the lock of a holder that has failed, after its lease: at most
	// api.MaxLockDelay. Zero is api.DefaultLockDelay; NoLockDelay is for work whose servers check sequencers.
	LockDelay time.Duration
	// Reason is shown to those who look who has the lock; at most api.MaxReason bytes. With Insist it is told to
	// a Revocable that has the lock now.
	Reason string
	// Insist has it ask another Revocable that has the lock to let go, too. Without it the request is quiet
	// (client.Quiet): work that can be put off does not end work of its like, but waits until that is done, or
	// lets go for another. Two that insist in loops end each other's work again and again, each after Notice.
	Insist bool
	// Notice is how long the work may go on after another has asked for the lock: then Context ends. 0 ends it
	// at once. The holder has at least that long, also if somebody waited before it got the lock.
	Notice time.Duration
}

// AcquireRevocable waits for the lock of a file, which is created if it is absent, in a directory that is
// there. If ctx ends before, the error is DeadlineExceeded or Cancelled and names the holders, and nothing
// is held. A negative Notice is InvalidArgument.
func AcquireRevocable(ctx context.Context, c *client.Client, path string, o RevocableOptions) (*Revocable, error) {
	if o.Notice < 0 {
		return nil, &api.Error{Code: api.InvalidArgument, Op: "acquire", Path: path, Message: "Notice is " + o.Notice.String() + "; want 0 or more"}
	}
	opening := client.OpenOptions{Write: true, Create: client.File, LockDelay: delayOf(o.LockDelay), Events: []api.EventKind{api.EventConflictingLock}}
	how := []client.LockOption{client.Reason(o.Reason)}
	//mutant: if false { //by TestRevocablesDoNotAskEachOther of ./client/recipe
	if !o.Insist {
		how = append(how, client.Quiet())
	}
	for {
		h, err := take(ctx, c, path, opening, api.Exclusive, false, how...)
		if err == nil {
			return newRevocable(h, o.Notice), nil
		}
		if !passing(err) {
			return nil, ended(ctx, err, "acquire", path)
		}
	}
}

func newRevocable(h *held, notice time.Duration) *Revocable {
	r := &Revocable{hold: hold{h}, asked: make(chan struct{})}
	r.ctx, r.end = context.WithCancelCause(h.lock.Context())
	r.listen.Go(func() { r.heed(notice) })
	return r
}

// heed waits for a request, and ends the context when notice has passed.
func (r *Revocable) heed(notice time.Duration) {
	for {
		e, err := r.held.handle.Next(r.ctx)
		if err != nil {
			return // there is no lock any more
		}
		if e.Kind == api.EventConflictingLock {
			r.reason = e.Explanation
			break
		}
		if e.Kind == api.EventLost { // perhaps a request: to let go in vain does no harm
			break
		}
	}
	close(r.asked)
	//mutant: timer := time.NewTimer(2 * notice) //by TestHolderLetsGoWhenItIsAsked of ./client/recipe
	timer := time.NewTimer(notice)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.end(&api.Error{Code: api.Cancelled, Op: "work under the lock", Path: r.Path(),
			Message: "another asks for it: " + cmp.Or(r.reason, "it gives no reason")})
	case <-r.ctx.Done():
	}
}

// Context is that of the work under the lock. It ends as that of client.Lock does; and with the
// code Cancelled, and the reason of the other, when another has asked for the lock and Notice has passed. The lock is
// held then, until Release.
func (r *Revocable) Context() context.Context { return r.ctx }

// Done is closed when Context ends.
func (r *Revocable) Done() <-chan struct{} { return r.ctx.Done() }

// Asked is closed when another has asked for the lock, even if it has given up since.
func (r *Revocable) Asked() <-chan struct{} { return r.asked }

// AskedFor returns the reason that the first of those gave who asked for the lock: "" if it gave none, or
// nobody has asked.
func (r *Revocable) AskedFor() string {
	select {
	case <-r.asked:
		return r.reason
	default:
		return ""
	}
}

// Release releases the lock, and returns as client.Lock.Release does. If ctx ends before the cell has
// answered it is Uncertain, and goes on in the background; another call waits for it again.
func (r *Revocable) Release(ctx context.Context) error {
	r.end(client.LockReleased)
	r.listen.Wait()
	return r.hold.Release(ctx)
}

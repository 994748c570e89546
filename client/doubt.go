package client

import (
	"context"
	"sync"
	"time"
)

// doubtAfter is how long a master may leave a call without an answer before the
// replicas are asked whether there is another: longer than a healthy one takes,
// also while it waits for a disk, and than an election.
const doubtAfter = time.Second

// watch looks after a call to t. A machine that is stopped, or that has lost its
// power or its network, closes no connection: its calls would wait for
// CallTimeout. So when the answer is late, the master is looked for, while the
// call goes on: if another is found, that is told to all who talk to t. If t
// itself is found, it is only slow, and left alone. The function it returns is
// called when the answer is there, or is not waited for any more; more than once
// does no harm.
func (f *finder) watch(ctx context.Context, t *target) (answered func()) {
	var mu sync.Mutex // guards what follows
	var doubt *search
	over := false
	timer := time.AfterFunc(doubtAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			doubt = f.doubt(ctx, t)
		}
	})
	return func() {
		if timer.Stop() {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		over = true
		if doubt != nil {
			f.leave(doubt)
			doubt = nil
		}
	}
}

// doubt joins the search for the master, and begins it if there is none, while t
// is believed to be the master. It returns nil if t is not, or no search can be.
func (f *finder) doubt(ctx context.Context, t *target) *search {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.master != t {
		return nil
	}
	s := f.search
	if s == nil {
		s = f.start(ctx)
	}
	s.waiting++
	return s
}

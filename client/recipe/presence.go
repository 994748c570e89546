package recipe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// inherit is how long an announcement waits for the file of an earlier session: the longest lease, and the
// time until the cell notices.
const inherit = api.MaxLease + api.MinLease

// AnnounceOption qualifies Announce.
type AnnounceOption func(*announceOptions)

type announceOptions struct {
	wait bool
}

// WaitForName makes Announce wait, at most a minute, for a name that another session has, instead of failing
// with Exists: for participants with names of their own, where the other is the same participant before a
// crash or move.
func WaitForName() AnnounceOption { return func(o *announceOptions) { o.wait = true } }

// Presence is an announcement: an ephemeral file that lasts as long as the session, and is made again after a
// deletion. Its methods may be called from several goroutines, but one Update at a time. Withdraw it, also
// after it has ended.
type Presence struct{ *presence }

// presence is what a Presence and a Publication have in common.
type presence struct {
	c      *client.Client
	path   api.Path
	ctx    context.Context //nolint:containedctx // it is the announcement's, handed out by Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the keep goroutine has ended
	end    hold.Ending   // removes the file

	mu     sync.Mutex     // guards what follows
	record record         // the file's, as far as the cell has answered, also for making it again
	file   *client.Handle // nil while absent
	made   chan struct{}  // closed and replaced when file is back
}

// Announce says that this process is up: by an ephemeral file of that name in a directory. It creates the
// directory, but not the one above. Members shows the value, which is kept in JSON, as text or, if not UTF-8,
// in base64. It must fit into a file (api.MaxContents) with some 200 bytes beside it; else it is TooLarge.
//
// If an earlier session has the name, or a file that is being removed, Announce waits for it, at most a
// minute. An earlier session is another of this process, or of a process of this host that no longer runs: so
// a restarted server has its name when the old lease has ended. Another owner is Exists, at once unless
// WaitForName is given; the error names it, in words and in Error.Holders.
//
// ctx bounds Announce only. The announcement has one goroutine, for which Withdraw waits.
func Announce(ctx context.Context, c *client.Client, dir, name string, value []byte, options ...AnnounceOption) (*Presence, error) {
	var o announceOptions
	for _, option := range options {
		option(&o)
	}
	p, err := announce(ctx, c, dir, name, sign(c).with(value), o)
	if err != nil {
		return nil, hold.Ended(ctx, err, "announce", dir+"/"+name)
	}
	return &Presence{p}, nil
}

func announce(ctx context.Context, c *client.Client, dir, name string, r record, o announceOptions) (*presence, error) {
	d, err := api.ParsePath(dir)
	if err != nil {
		return nil, err
	}
	file, err := d.Join(name)
	if err == nil && file.Parent() != d {
		err = api.Errorf(api.InvalidArgument, "%q is no name of a file: it has a slash", name)
	}
	if err != nil {
		return nil, err
	}
	p := &presence{c: c, path: file, record: r, done: make(chan struct{}), made: make(chan struct{})}
	if p.file, err = register(ctx, c, file, r.text(), o); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go p.keep(p.file)
	return p, nil
}

// Context ends when the announcement has: it was withdrawn, the session has ended, or the file was deleted
// and cannot be made again, for example because another took the name. context.Cause says which.
func (p *presence) Context() context.Context { return p.ctx }

// Done is closed when Context ends.
func (p *presence) Done() <-chan struct{} { return p.ctx.Done() }

// Err checks the clock, and returns why the announcement has ended, or nil.
func (p *presence) Err() error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return p.c.Err()
}

// Path returns the path of the file.
func (p *presence) Path() string { return p.path.String() }

// Update changes the value. If the file is deleted meanwhile, it is made again with the new one. If ctx ends
// first, the error is Uncertain, Cancelled or DeadlineExceeded, and the new value may still appear. After any
// other error the old value remains.
func (p *Presence) Update(ctx context.Context, value []byte) error { return p.update(ctx, value) }

func (p *presence) update(ctx context.Context, value []byte) error {
	p.mu.Lock()
	r := p.record.with(value)
	p.mu.Unlock()
	return p.rewrite(ctx, r)
}

func (p *presence) rewrite(ctx context.Context, r record) error {
	for {
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		p.mu.Lock()
		file, made := p.file, p.made
		p.mu.Unlock()
		if file != nil {
			if _, err := file.SetContents(ctx, r.text()); !hold.Gone(err) && p.written(file, r, err) {
				return err
			}
		}
		select {
		case <-made:
		case <-p.ctx.Done():
		case <-ctx.Done():
			return hold.Ended(ctx, ctx.Err(), "update", p.Path())
		}
	}
}

// written records the result of writing a record: a rejected record is not used to make the file again. It
// reports whether the write is complete: a file deleted since may be made again with the old record.
func (p *presence) written(file *client.Handle, r record, err error) bool {
	if err != nil && !errors.Is(err, api.Uncertain) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = r
	return err != nil || p.file == file
}

// Withdraw removes the file, and returns when nothing of the announcement runs any more. Nil also if the file
// went with its session. If ctx ends first, it goes on in the background until the cell answers, and another
// call waits for it again. LockHeld says that another holds the lock of the file, which that holder's close
// removes.
func (p *presence) Withdraw(ctx context.Context) error {
	p.cancel(&api.Error{Code: api.Cancelled, Op: "announce", Path: p.Path(), Err: client.Closed, Message: "it was withdrawn"})
	// Here already, so that ended asks the context that ended the call: two contexts with the same deadline
	// end in either order.
	ctx, cancel := p.c.CleanupContext(ctx)
	defer cancel()
	return hold.Ended(ctx, p.end.Run(ctx, p.c, "withdraw", p.Path(), p.remove), "withdraw", p.Path())
}

// remove removes the file, after keep has stopped.
func (p *presence) remove(ctx context.Context) error {
	<-p.done
	p.mu.Lock()
	file := p.file
	p.mu.Unlock()
	if file == nil {
		return nil
	}
	// Close alone would let a reader keep the file. Close follows whatever Delete returns: an open handle
	// keeps the file for the life of the session.
	err := file.Delete(ctx)
	if closing := file.Close(ctx); err == nil || hold.Gone(err) {
		err = closing
	}
	if errors.Is(err, api.SessionExpired) {
		return nil
	}
	return err
}

// keep makes the file again after each deletion, until the announcement ends.
func (p *presence) keep(file *client.Handle) {
	defer close(p.done)
	for {
		err := deleted(p.ctx, file)
		if err == nil {
			p.put(nil)
			hold.Leave(p.ctx, file)
			p.mu.Lock()
			r := p.record
			p.mu.Unlock()
			file, err = register(p.ctx, p.c, p.path, r.text(), announceOptions{}) // Update writes a value changed meanwhile
		}
		if err != nil {
			p.cancel(err)
			return
		}
		p.put(file)
	}
}

func (p *presence) put(file *client.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.file = file
	if file != nil {
		close(p.made)
		p.made = make(chan struct{})
	}
}

// deleted waits until the node of a handle is deleted; an error has another cause.
func deleted(ctx context.Context, file *client.Handle) error {
	for {
		if _, err := file.Next(ctx); errors.Is(err, api.HandleClosed) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// register makes an ephemeral file and its directory. It waits for an earlier file of that name to go.
func register(ctx context.Context, c *client.Client, path api.Path, contents []byte, o announceOptions) (*client.Handle, error) {
	h, err := create(ctx, c, path, contents)
	if !errors.Is(err, api.NotFound) && !errors.Is(err, api.Exists) {
		return h, err
	}
	limited, cancel := context.WithTimeout(ctx, inherit)
	defer cancel()
	var taken error
	dir := client.OpenOptions{Read: true, Create: client.Directory, Events: []api.EventKind{api.EventChildRemoved}}
	for s, err := range follow(limited, c, path.Parent().String(), dir) {
		if err != nil {
			if taken != nil && ctx.Err() == nil && limited.Err() != nil {
				return nil, taken
			}
			return nil, err
		}
		if s.Handle == nil {
			return nil, &api.Error{Code: api.NotFound, Op: "announce", Path: path.String(),
				Message: fmt.Sprintf("there is no directory %s, which would hold that of the file; create it first", path.Parent().Parent())}
		}
		if !s.tells(path.Base()) {
			continue
		}
		h, err := create(ctx, c, path, contents)
		if errors.Is(err, api.NotFound) {
			continue // the directory was just deleted
		}
		if !errors.Is(err, api.Exists) {
			return h, err
		}
		var wait bool
		if wait, taken = owner(ctx, c, path, o); !wait {
			return nil, taken
		}
	}
	return nil, limited.Err() // not reached: a sequence ends with its error
}

// create makes the file, and keeps it open. It opens it for an event that never comes, to learn of its
// deletion.
func create(ctx context.Context, c *client.Client, path api.Path, contents []byte) (*client.Handle, error) {
	return c.Open(ctx, path.String(), client.OpenOptions{
		Write: true, Create: client.NewFile, Ephemeral: true, Contents: contents, Events: []api.EventKind{api.EventLockAcquired},
	})
}

// owner finds the owner of an existing file, and whether to wait for the file to go. The error names the
// owner.
func owner(ctx context.Context, c *client.Client, path api.Path, o announceOptions) (wait bool, taken error) {
	text, stat, err := c.Get(ctx, path.String()) // an open handle would keep it
	if hold.Gone(err) || errors.Is(err, api.Exists) {
		return true, api.Errorf(api.Exists, "a file of that name is being removed")
	}
	if err != nil {
		return false, err
	}
	r := parseRecord(text)
	exists := &api.Error{Code: api.Exists, Op: "announce", Path: path.String()}
	switch {
	case !stat.Ephemeral:
		exists.Message = "a permanent file has that name; delete it, or take another name"
		return false, exists
	case r.session() == 0:
		exists.Message = "an ephemeral file that no announcement has made has that name; take another name"
		return false, exists
	}
	who, found, err := c.Cell().FindSession(ctx, r.session())
	if err != nil {
		return false, err
	}
	if !found {
		exists.Message = fmt.Sprintf("session %s had that name, and is over; a reader still has the file open", r.Session)
		return true, exists
	}
	exists.Holders = []api.Holder{who.Holder}
	exists.Message = fmt.Sprintf("session %v of %s (host %s, pid %d) has that name; take another, or end that session", who.Session, who.Principal, who.Host, who.PID)
	if who.Session == c.Session() {
		return false, exists // it has already announced the name
	}
	return o.wait || r.before(sign(c)), exists
}

// before reports whether a record may be of an earlier session than mine: of the same process, or of a
// process of the same host that no longer runs.
func (r record) before(mine record) bool {
	if r.Host != mine.Host {
		return false
	}
	return r.PID == mine.PID || !runs(r.PID)
}

// runs reports whether a process of that number runs on this host, if the system tells.
func runs(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return true // unknown
	}
	defer func() { _ = p.Release() }() // only looked at
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

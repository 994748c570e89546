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
)

// inherit is how long an announcement waits for the file of a session before to go: a lease, however long,
// and the time that the cell takes to notice.
const inherit = api.MaxLease + api.MinLease

// AnnounceOption qualifies Announce.
type AnnounceOption func(*announceOptions)

type announceOptions struct {
	wait bool
}

// WaitForName makes Announce wait for a name that another session has, a minute at the most, instead of
// failing with Exists at once: for those whose names are their own, so that whoever has it is the same
// participant before it crashed or moved.
func WaitForName() AnnounceOption { return func(o *announceOptions) { o.wait = true } }

// Presence is an announcement that one is up: an ephemeral file, which is there as long as the session
// is, and is made again if somebody deletes it. Its methods may be called from several goroutines, but
// one Update after the other. Withdraw it, also when it has ended.
type Presence struct {
	c      *client.Client
	path   string
	ctx    context.Context //nolint:containedctx // it is the announcement's, handed out by Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the goroutine that keeps the file has ended
	end    ending        // that removes it

	mu     sync.Mutex     // guards what follows
	record record         // that the file holds, as far as the cell has said, and is to hold when it is made again
	file   *client.Handle // nil while it is made again
	made   chan struct{}  // closed and replaced when file is there again
}

// Announce says that this process is up: by an ephemeral file of that name in a directory, which is
// created if it is absent; the one above is not. The value is what Members shows of it. It is kept in JSON, as
// text or, if it is not UTF-8, in base64, which must fit into a file (api.MaxContents) with some 200 bytes
// beside it; else it is TooLarge.
//
// If the name is taken by a session before, which the cell has not ended yet, or by a file that is being
// removed, it waits for that, a minute at the most. A session before is another of this process, or one
// of a process of this host that does not run any more: so a server that is started again after a crash
// has its name when the lease of the crashed one has ended. If another has the name it is Exists, at once
// unless WaitForName is given: the error names it, in words and in Error.Holders.
//
// ctx bounds Announce only. The announcement has one goroutine, for which Withdraw waits.
func Announce(ctx context.Context, c *client.Client, dir, name string, value []byte, options ...AnnounceOption) (*Presence, error) {
	var o announceOptions
	for _, option := range options {
		option(&o)
	}
	p, err := announce(ctx, c, dir, name, sign(c).with(value), o)
	return p, ended(ctx, err, "announce", dir+"/"+name)
}

func announce(ctx context.Context, c *client.Client, dir, name string, r record, o announceOptions) (*Presence, error) {
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
	p := &Presence{c: c, path: file.String(), record: r, done: make(chan struct{}), made: make(chan struct{})}
	if p.file, err = register(ctx, c, file, r.text(), o); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go p.keep(p.file)
	return p, nil
}

// Context ends when the announcement has: it was withdrawn, the session is over, or the file was deleted
// and cannot be made again, because another took the name for example. context.Cause says which.
func (p *Presence) Context() context.Context { return p.ctx }

// Done is closed when Context ends.
func (p *Presence) Done() <-chan struct{} { return p.ctx.Done() }

// Err checks the clock, and returns why the announcement has ended, nil while it has not.
func (p *Presence) Err() error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return p.c.Err()
}

// Path returns the path of the file.
func (p *Presence) Path() string { return p.path }

// Update changes the value. Should the file be deleted meanwhile, it is made again with the new one. If
// ctx ends first the error is Uncertain, Cancelled or DeadlineExceeded, and the new value may yet be
// shown. After any other error the value is the one before.
func (p *Presence) Update(ctx context.Context, value []byte) error {
	p.mu.Lock()
	r := p.record.with(value)
	p.mu.Unlock()
	return p.rewrite(ctx, r)
}

// rewrite replaces the record.
func (p *Presence) rewrite(ctx context.Context, r record) error {
	for {
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		p.mu.Lock()
		file, made := p.file, p.made
		p.mu.Unlock()
		if file != nil {
			if _, err := file.SetContents(ctx, r.text()); !gone(err) && p.written(file, r, err) {
				return err
			}
		}
		select {
		case <-made:
		case <-p.ctx.Done():
		case <-ctx.Done():
			return ended(ctx, ctx.Err(), "update", p.path)
		}
	}
}

// written takes note of what came of writing a record to a file: what the cell has refused is not what
// the file is to hold when it is made again. It reports whether that was all: if the file was deleted
// since, it may be made again with the record before.
func (p *Presence) written(file *client.Handle, r record, err error) bool {
	if err != nil && !errors.Is(err, api.Uncertain) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = r
	return err != nil || p.file == file
}

// Withdraw removes the file, and returns when that is done and nothing of the announcement runs any
// more. Nil also if the file went with its session. If ctx ends first it goes on in the background until
// the cell answers, and another call waits for it again. LockHeld says that another holds the lock of the
// file, which goes when he closes it.
func (p *Presence) Withdraw(ctx context.Context) error {
	p.cancel(&api.Error{Code: api.Cancelled, Op: "announce", Path: p.path, Err: client.Closed, Message: "it was withdrawn"})
	// Here already, so that ended asks the context by which the call has ended: two with the same deadline
	// end in either order.
	ctx, cancel := p.c.CleanupContext(ctx)
	defer cancel()
	return ended(ctx, p.end.run(ctx, p.c, "withdraw", p.path, p.remove), "withdraw", p.path)
}

// remove removes the file, once nobody makes it again.
func (p *Presence) remove(ctx context.Context) error {
	<-p.done
	p.mu.Lock()
	file := p.file
	p.mu.Unlock()
	if file == nil {
		return nil
	}
	// Close alone would not do: a reader that has the file open in this moment would keep it. But it is
	// closed whatever came of the other: left open, the file stays for the life of the session.
	err := file.Delete(ctx)
	if closing := file.Close(ctx); err == nil || gone(err) {
		err = closing
	}
	if errors.Is(err, api.SessionExpired) {
		return nil
	}
	return err
}

// keep makes the file again whenever it is deleted, until the announcement ends.
func (p *Presence) keep(file *client.Handle) {
	defer close(p.done)
	for {
		err := deleted(p.ctx, file)
		if err == nil {
			p.put(nil)
			leave(p.ctx, file)
			file, err = p.again()
		}
		if err != nil {
			p.cancel(err)
			return
		}
		p.put(file)
	}
}

// again makes the file again. A value that was changed while it was made is written by Update.
func (p *Presence) again() (*client.Handle, error) {
	path, err := api.ParsePath(p.path)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	r := p.record
	p.mu.Unlock()
	return register(p.ctx, p.c, path, r.text(), announceOptions{})
}

// put takes note of the file, or of its absence.
func (p *Presence) put(file *client.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.file = file
	if file != nil {
		close(p.made)
		p.made = make(chan struct{})
	}
}

// deleted waits until the node of a handle is deleted; an error is of anything else.
func deleted(ctx context.Context, file *client.Handle) error {
	for {
		e, err := file.Next(ctx)
		switch {
		case errors.Is(err, api.HandleClosed):
			return nil
		case err != nil:
			return err
		case e.Kind == api.EventHandleInvalid:
			return nil
		}
	}
}

// register makes an ephemeral file, and the directory for it. It waits for one of that name that is on
// its way out.
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
			continue // the directory has just been deleted
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

// create makes the file, and keeps it open. It is opened for an event of which there will be none, to
// hear of its deletion.
func create(ctx context.Context, c *client.Client, path api.Path, contents []byte) (*client.Handle, error) {
	return c.Open(ctx, path.String(), client.OpenOptions{
		Write: true, Create: client.NewFile, Ephemeral: true, Contents: contents, Events: []api.EventKind{api.EventLockAcquired},
	})
}

// owner finds out who has a file that is to be made, and whether to wait for it to go. The error says who
// has it.
func owner(ctx context.Context, c *client.Client, path api.Path, o announceOptions) (wait bool, taken error) {
	going := api.Errorf(api.Exists, "a file of that name is being removed")
	h, err := c.Open(ctx, path.String(), client.OpenOptions{Read: true})
	if gone(err) || errors.Is(err, api.Exists) {
		return true, going
	}
	if err != nil {
		return false, err
	}
	text, stat, err := h.Contents(ctx)
	leave(ctx, h) // while it is open here, it does not go
	if gone(err) {
		return true, going
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
	return r.holds(ctx, c, exists, o)
}

// holds completes the error of one whose name is taken by the session of a record.
func (r record) holds(ctx context.Context, c *client.Client, exists *api.Error, o announceOptions) (wait bool, taken error) {
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
		return false, exists // it has announced the name already
	}
	return o.wait || r.before(sign(c)), exists
}

// before reports whether a record may be of a session before that of mine: of the same process, or of one of
// the same host that does not run any more.
func (r record) before(mine record) bool {
	if r.Host != mine.Host {
		return false
	}
	return r.PID == mine.PID || !runs(r.PID)
}

// runs reports whether there is a process of that number on this host, as far as this system tells.
func runs(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return true // it cannot be known
	}
	defer func() { _ = p.Release() }() // it is only looked at
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

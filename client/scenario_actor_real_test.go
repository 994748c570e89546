//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// actor is one goroutine of a worker: what it does, it does one after the other.
type actor struct {
	*scenario
	host   string
	client *client.Client
	doubts []*doubt // what it does not know whether it has done, since the last that it knows of
}

func pick[T any](list ...T) T { return list[rand.IntN(len(list))] }

func (s *scenario) text(host string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	return fmt.Sprintf("%s-%d", host, s.serial)
}

// act opens a file, does something with it, and closes it.
func (a *actor) act() {
	if rand.IntN(6) == 0 {
		a.keepLocking()
		return
	}
	path := pick(pick(registers...), pick(fleeting...), pick(brief...), pick(lockFiles...))
	o := client.OpenOptions{Read: true, Write: true, LockDelay: 5 * time.Second}
	switch path[len(path)-2] {
	case 't':
		if rand.IntN(2) == 0 {
			o.Create, o.Contents = client.File, []byte(a.text(a.host))
		}
	case 'e':
		o.Create, o.Contents, o.Ephemeral = client.File, []byte(a.text(a.host)), true
	}
	if rand.IntN(3) == 0 {
		o.Events = []api.EventKind{api.EventConflictingLock, api.EventContentsModified}
	}
	uses := 1 + rand.IntN(4)
	if path[len(path)-2] == 'l' && rand.IntN(2) == 0 {
		o.CacheLock = true
		uses += rand.IntN(12)
	}
	ctx, cancel := soon(a.ctx)
	was := a.look(a.host, path)
	h, err := a.client.Open(ctx, path, o)
	a.hung(ctx, "open", err)
	cancel()
	if len(o.Contents) > 0 && (err != nil || !h.Created()) {
		a.failed(path, string(o.Contents), err)
	}
	if err != nil {
		a.noticed(was, err)
		return
	}
	for range uses {
		a.use(h, path)
		pass(rand.N(100 * time.Millisecond))
	}
	ctx, cancel = soon(a.ctx)
	defer cancel()
	a.hung(ctx, "close", h.Close(ctx))
}

// keepLocking takes the same lock again and again through a handle that keeps it, perhaps in two goroutines.
func (a *actor) keepLocking() {
	path := pick(keptLocks...)
	ctx, cancel := soon(a.ctx)
	defer cancel()
	h, err := a.client.Open(ctx, path, client.OpenOptions{Write: true, LockDelay: 5 * time.Second, CacheLock: true})
	if err != nil {
		return
	}
	var both sync.WaitGroup
	for range 1 + rand.IntN(2) {
		both.Go(func() {
			for range rand.IntN(30) {
				a.useKept(h, path)
				pass(rand.N(200 * time.Millisecond))
			}
		})
	}
	both.Wait()
	ctx, cancel = soon(a.ctx)
	defer cancel()
	a.hung(ctx, "close", h.Close(ctx))
}

func (a *actor) useKept(h *client.Handle, path string) {
	ctx, cancel := soon(a.ctx)
	defer cancel()
	was := a.look(a.host, path)
	l, err := h.Acquire(ctx, pick(api.Exclusive, api.Exclusive, api.Exclusive, api.Shared))
	if err != nil {
		return
	}
	one := a.hold(was, l)
	pass(rand.N(20 * time.Millisecond))
	if rand.IntN(50) == 0 {
		pass(rand.N(20 * time.Second))
	}
	ctx, cancel = soon(a.ctx)
	defer cancel()
	a.hung(ctx, "release", l.Release(ctx))
	a.letGo(one)
}

// hung notes a call that went on after the end of its context, or took longer than any trouble lasts, and an
// answer that nobody should get.
func (a *actor) hung(ctx context.Context, op string, err error) {
	end := ctx.Value(endKey{}).(time.Time)
	if late := time.Since(end); late > client.CleanupTime+time.Second {
		a.fault("%s: %s came back %v after the end of its context: %v", a.host, op, late, err)
	}
	if ctx.Value(longKey{}) != nil && time.Until(end) < tooLong/4 {
		a.fault("%s: %s took for ever: %v", a.host, op, err)
	}
	if errors.Is(err, api.Corrupt) || errors.Is(err, api.BadHandle) {
		a.fault("%s: %s: %v", a.host, op, err)
	}
}

// use does one thing with a handle.
func (a *actor) use(h *client.Handle, path string) {
	ctx, cancel := soon(a.ctx)
	defer cancel()
	switch n := rand.IntN(20); {
	case n < 6:
		a.read(ctx, h, path)
	case n < 9:
		a.write(ctx, h, path, 0)
	case n < 11:
		if stat, ok := a.read(ctx, h, path); ok {
			a.write(ctx, h, path, stat.Content)
		}
	case n < 12 && path[len(path)-2] == 't':
		a.remove(ctx, h, path)
	case n < 18 && path[len(path)-2] == 'l':
		a.lock(ctx, h, path)
		for range rand.IntN(6) { // a handle that keeps its lock has it again at once
			again, cancel := soon(a.ctx)
			a.lock(again, h, path)
			cancel()
		}
	case n == 18:
		time.AfterFunc(rand.N(10*time.Millisecond), h.Poison)
		a.read(ctx, h, path)
		pass(10 * time.Millisecond)
	}
}

func (a *actor) read(ctx context.Context, h *client.Handle, path string) (api.Stat, bool) {
	was := a.look(a.host, path)
	contents, stat, err := h.Contents(ctx)
	a.hung(ctx, "read", err)
	if err != nil {
		return stat, false
	}
	a.saw(was, string(contents), stat)
	return stat, true
}

// write writes, if the generation is still that one, unless that is 0.
func (a *actor) write(ctx context.Context, h *client.Handle, path string, from api.Generation, options ...client.WriteOption) {
	text := a.text(a.host)
	if from != 0 {
		options = append(options, client.IfGeneration(from))
	}
	was := a.look(a.host, path)
	stat, err := h.SetContents(ctx, []byte(text), options...)
	a.hung(ctx, "write", err)
	if err != nil {
		a.failed(path, text, err)
		return
	}
	a.wrote(was, text, stat, from)
	a.know(stat.Content)
}

// failed takes note of a write that came to an error.
func (a *actor) failed(path, text string, err error) {
	if errors.Is(err, api.Uncertain) || errors.Is(err, api.SessionExpired) || errors.Is(err, client.Poisoned) {
		a.doubts = append(a.doubts, a.doubtful(path, text))
		return
	}
	a.refused(path, text, err)
}

// know takes note that the actor knows of something that it has done: what it did not know of before was
// done before, or never will be.
func (a *actor) know(g api.Generation) {
	for _, d := range a.doubts {
		a.settle(d, g)
	}
	a.doubts = nil
}

func (a *actor) remove(ctx context.Context, h *client.Handle, path string) {
	_, stat, err := h.Contents(ctx)
	if err != nil {
		return
	}
	err = h.Delete(ctx)
	a.hung(ctx, "delete", err)
	if err == nil {
		a.removed(path, stat.Instance)
	}
}

func (a *actor) lock(ctx context.Context, h *client.Handle, path string) {
	mode := pick(api.Exclusive, api.Exclusive, api.Shared)
	var l *client.Lock
	var err error
	was := a.look(a.host, path)
	if rand.IntN(4) == 0 {
		l, err = h.TryAcquire(ctx, mode)
	} else {
		l, err = h.Acquire(ctx, mode, client.OnQueued(func(client.Queued) {
			_, _ = a.client.State(), a.client.Left()
			_, _ = h.Stat(ctx) // it must not wait for the Acquire that it is called by
		}))
	}
	a.hung(ctx, "acquire", err)
	if err != nil {
		return
	}
	one := a.hold(was, l)
	defer a.letGo(one)
	for range rand.IntN(4) {
		if rand.IntN(2) == 0 {
			a.guarded(l, path)
		}
		select {
		case <-l.Context().Done():
		case <-time.After(rand.N(time.Second)):
		}
	}
	if errors.Is(l.Err(), client.LockTaken) {
		if err := a.client.CheckSequencer(ctx, l.Sequencer().String()); err == nil {
			a.fault("%s: a lock was reported lost that is held: %v", a.host, l.Err())
		}
	}
	ctx, cancel := soon(a.ctx)
	defer cancel()
	switch rand.IntN(4) {
	case 0: // Close releases it
		err = h.Close(ctx)
	case 1: // nobody does before Close
	default:
		err = l.Release(ctx)
	}
	a.hung(ctx, "release", err)
}

// guarded writes under the lock's sequencer, through a handle that may be bound to it.
func (a *actor) guarded(l *client.Lock, path string) {
	ctx, cancel := soon(a.ctx)
	defer cancel()
	target := registers[0]
	if path == lockFiles[1] {
		target = registers[1]
	}
	h, err := a.client.Open(ctx, target, client.OpenOptions{Read: true, Write: true})
	if err != nil {
		return
	}
	defer func() { _ = h.Close(ctx) }() // it may be gone
	option := client.IfSequencer(l.Sequencer())
	var options []client.WriteOption
	if rand.IntN(2) == 0 {
		if err := h.SetSequencer(ctx, l.Sequencer()); err != nil {
			return
		}
	} else {
		options = append(options, option)
	}
	text := a.text(a.host)
	was := a.look(a.host, target)
	stat, err := h.SetContents(ctx, []byte(text), options...)
	if err != nil {
		a.failed(target, text, err)
		return
	}
	a.wrote(was, text, stat, 0)
	a.fenced(target, stat.Content, l)
	a.know(stat.Content)
}

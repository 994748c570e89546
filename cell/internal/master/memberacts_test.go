package master

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// act does one random operation. The caller holds crowd.mu.
func (c *member) act() {
	if c.w.orderly {
		c.actOrderly()
		return
	}
	switch n := c.w.below(100); {
	case n < 20 || len(c.handles) == 0:
		c.openSome()
	case n < 42:
		c.lockSome()
	case n < 50:
		c.giveUpSome()
	case n < 56:
		c.closeSome()
	case n < 64:
		c.changeSome()
	case n < 70:
		c.readSome()
	case n < 76:
		c.breakStream()
	case n < 81:
		c.sendAgain()
	case n < 84:
		c.meddle()
	case n < 88:
		c.lateCopy()
	case n < 93:
		c.cancelSome()
	case n < 95:
		c.breakSome()
	case n < 96:
		c.endOther()
	case n < 98:
		c.silent = !c.silent
	case n < 99:
		c.abandonSome()
	case c.w.percent(50):
		c.setQuota()
	default:
		if c.w.percent(50) {
			c.endSession()
		}
	}
}

// actOrderly does one operation that has to do with waiting for locks.
func (c *member) actOrderly() {
	if c.w.tidy && c.w.percent(25) {
		[]func(){c.breakStream, c.sendAgain, c.lateCopy, c.setQuota}[c.w.below(4)]()
		return
	}
	switch n := c.w.below(100); {
	case n < 15 || len(c.handles) == 0:
		c.openSome()
	case n < 65:
		c.lockSome()
	case n < 75:
		c.giveUpSome()
	case n < 83:
		c.closeSome()
	case n < 93:
		c.cancelSome()
	case n < 94:
		c.breakStream()
	case n < 95:
		c.sendAgain()
	case n < 98:
		c.meddle()
	default:
		c.breakSome()
	}
}

func pick[T any](w *crowd, list []T) (one T, ok bool) {
	if len(list) == 0 {
		return one, false
	}
	return list[w.below(len(list))], true
}

func (c *member) openSome() {
	name, _ := pick(c.w, c.w.names)
	rights := namespace.ToRead | namespace.ToWrite | namespace.ToChange
	h := Handle{Rights: rights, Delay: time.Duration(c.w.below(3)) * time.Second}
	for _, kind := range []api.EventKind{api.EventConflictingLock, api.EventContentsModified, api.EventLockAcquired, api.EventLockVacant} {
		if c.w.percent(30) {
			h.Events = h.Events.With(kind)
		}
	}
	create := raftfsm.Open{Create: api.Create(c.w.below(3)), Kind: api.File, Ephemeral: c.w.percent(35), Rights: rights}
	if name == "/d" {
		create.Kind = api.Directory
	}
	if c.w.percent(15) {
		for _, hold := range c.holds {
			create.Preconditions = []raftfsm.Precondition{{Lock: hold.lock.Name, Mode: hold.mode, Generation: hold.generation}}
		}
	}
	var directory Handle
	for _, d := range c.handles {
		if d.Directory && d.Node.Name == name.Parent() && c.w.percent(50) {
			directory = d
		}
	}
	path, _ := name.In("local")
	c.ask("open "+string(name), 0, namesTouched(name), func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		q := OpenRequest{Mutation: by, Path: path, Directory: directory, Handle: h, Create: create}
		q.Handle.Owner = namespace.Owner{Session: by.Session, Handle: api.HandleID(by.Number)}
		return m.Files.Open(ctx, q)
	}, func(answer any, err error) {
		if err == nil {
			c.handles = append(c.handles, answer.(Opened).Handle)
		}
	})
}

func (c *member) lockSome() {
	h, ok := pick(c.w, c.handles)
	if !ok {
		return
	}
	mode := []api.LockMode{api.Exclusive, api.Shared}[c.w.below(2)]
	try := c.w.percent(25)
	var preconditions []raftfsm.Precondition // like a handle that carries a sequencer
	if other, ok := pick(c.w, c.w.members); ok && c.w.percent(15) {
		for _, one := range other.holds {
			preconditions = []raftfsm.Precondition{{Lock: one.lock.Name, Mode: one.mode, Generation: one.generation}}
		}
	}
	var place Ticket // guarded by the crowd's mutex
	what := "acquire " + string(h.Node.Name)
	if try {
		what = "try " + what
	}
	c.ask(what, h.Owner.Handle, nil, func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		claim := raftfsm.Claim{Mutation: by, Handle: h.Owner.Handle, Mode: mode, Delay: h.Delay, Preconditions: preconditions}
		if try {
			return m.Locks.TryAcquire(ctx, requestFor(claim, h))
		}
		c.w.mu.Lock()
		t := place
		c.w.mu.Unlock()
		r := requestFor(claim, h)
		r.Ticket, r.Queued = t, func(q Queued) error {
			c.w.mu.Lock()
			defer c.w.mu.Unlock()
			place = q.Ticket
			return nil
		}
		return m.Locks.Acquire(ctx, r)
	}, func(answer any, err error) {
		if err == nil {
			c.got(h, answer.(raftfsm.Answer))
		}
	})
}

// giveUpSome releases a lock.
func (c *member) giveUpSome() {
	for id, hold := range c.holds {
		c.release(id, hold)
		return
	}
}

func (c *member) release(id api.HandleID, hold held) {
	delete(c.holds, id)
	c.ask("release "+string(hold.lock.Name), id, nil, func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		return nil, m.Locks.Release(ctx, by, hold.h, hold.generation)
	}, nil)
}

// meddle asks to release a lock through a handle that does not hold it.
func (c *member) meddle() {
	name, _ := pick(c.w, c.w.names)
	node, there := c.w.state.Load().Tree.Get(name)
	if !there {
		return
	}
	h := Handle{Owner: namespace.Owner{Session: c.id, Handle: api.HandleID(api.MaxGeneration)}, Node: node.Ref()}
	c.ask("release in vain "+string(name), 0, nil, func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		return nil, m.Locks.Release(ctx, by, h, node.Lock)
	}, nil)
}

// letGo releases everything.
func (c *member) letGo() {
	for id, hold := range c.holds {
		if !c.dead {
			c.release(id, hold)
		}
	}
	if (len(c.tainted) > 0 || c.ended) && !c.dead {
		c.endSession() // it may hold a lock without knowing
	}
}

func (c *member) closeSome() {
	h, ok := pick(c.w, c.handles)
	if !ok {
		return
	}
	c.handles = slices.DeleteFunc(c.handles, func(o Handle) bool { return o == h })
	delete(c.holds, h.Owner.Handle)
	c.lost[h.Owner.Handle] = api.MaxGeneration
	c.ask("close "+string(h.Node.Name), h.Owner.Handle, nil, func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		return nil, m.Files.Close(ctx, by, h)
	}, nil)
}

// changeSome writes or deletes a node, or changes its ACL.
func (c *member) changeSome() {
	h, ok := pick(c.w, c.handles)
	if !ok {
		return
	}
	kind := c.w.below(3)
	if c.w.crowded && c.w.percent(50) {
		kind = 1
		for _, hold := range c.holds {
			h = hold.h // no other handle may delete it
		}
	}
	var preconditions []raftfsm.Precondition
	if hold, ok := c.holds[h.Owner.Handle]; ok && c.w.percent(50) {
		preconditions = []raftfsm.Precondition{{Lock: hold.lock.Name, Mode: hold.mode, Generation: hold.generation}}
	}
	c.ask([]string{"write ", "delete ", "set the ACL of "}[kind]+string(h.Node.Name), h.Owner.Handle, namesTouched(h.Node.Name), func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		command := raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: by, Node: h.Node, Contents: []byte("x"), Preconditions: preconditions}}
		switch kind {
		case 1:
			command = raftfsm.Command{Delete: &raftfsm.Delete{Mutation: by, Node: h.Node, Handle: h.Owner.Handle, Preconditions: preconditions}}
		case 2:
			command = raftfsm.Command{SetACL: &raftfsm.SetACL{Mutation: by, Node: h.Node, ACL: api.ACL{Read: "everyone"}, Preconditions: preconditions}}
		}
		return m.Files.Change(ctx, h, namespace.ToWrite, by, command)
	}, nil)
}

// readSome reads a node, and caches it if it may.
func (c *member) readSome() {
	h, ok := pick(c.w, c.handles)
	if !ok {
		return
	}
	m, name := c.master(), h.Node.Name
	dropped, flushed := c.dropped[name], c.flushed
	c.w.work.Go(func() {
		node, cacheable, err := m.Files.ReadToCache(c.w.ctx, h, namespace.ToRead)
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if err == nil && cacheable && m.epoch.number == c.epoch && c.w.current.Master == m && !c.dead &&
			c.dropped[name] == dropped && c.flushed == flushed && c.changing[name] == 0 {
			c.cache[name] = seenOf(node)
		}
	})
}

// renewCache asks for a cache lease.
func (c *member) renewCache() {
	m, sent := c.master(), time.Now()
	who := Caller{Session: c.id, Epoch: c.epoch}
	c.w.work.Go(func() {
		if m.Sessions.Admit(who) != nil {
			return
		}
		lease, err := m.Files.RenewCache(c.w.ctx, who.Session)
		c.w.upTo(time.Second)
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if end := sent.Add(lease); err == nil && lease > 0 && who.Epoch == c.epoch && end.After(c.cached) {
			c.cached = end
			c.checkUsable()
		}
	})
}

func (c *member) breakStream() {
	if r, ok := pick(c.w, c.outstanding()); ok {
		r.stop[c.w.below(len(r.stop))]()
	}
}

func (c *member) sendAgain() {
	if r, ok := pick(c.w, c.outstanding()); ok {
		c.send(r, c.declaration(r.number))
	}
}

// lateCopy delivers a copy of some request that was sent when the request was new.
func (c *member) lateCopy() {
	if r, ok := pick(c.w, c.all); ok {
		c.send(r, r.first)
	}
}

// cancelSome withdraws a request for a lock.
func (c *member) cancelSome() {
	r, ok := pick(c.w, c.outstanding())
	if !ok || !strings.Contains(r.what, "acquire") {
		return
	}
	m, by := c.master(), c.declaration(r.number)
	c.w.note("%v withdraws %v", c.id, r)
	by.Hash = 0
	r.copies++
	c.w.work.Go(func() {
		a, err := m.Locks.Cancel(c.w.ctx, by)
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		r.copies--
		switch {
		case err != nil:
			c.hear(r, nil, err)
		case a.Code() == api.Cancelled && !r.done:
			r.withdrawn = true
			c.conclude(r, nil, a.Err())
		default:
			c.hear(r, a, cmp.Or(a.Err(), error(nil)))
		}
	})
}

// breakSome takes a lock away from its holders.
func (c *member) breakSome() {
	name, _ := pick(c.w, c.w.names)
	node, there := c.w.state.Load().Tree.Get(name)
	if !there {
		return
	}
	now, ref := c.w.percent(30), node.Ref()
	c.w.forced[name] = c.w.forced[name] || now
	c.ask("break "+string(name), 0, nil, func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		return nil, m.Locks.Break(ctx, raftfsm.Revoke{Mutation: by, Lock: ref, Why: "try", Now: now})
	}, nil)
}

func (c *member) endOther() {
	other, _ := pick(c.w, c.w.members)
	c.ask("end another", 0, nil, func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		return nil, m.Sessions.Terminate(ctx, raftfsm.Terminate{Mutation: by, Target: other.id, Why: "try"})
	}, nil)
}

// abandonSome makes a client give up a request without a Cancel.
func (c *member) abandonSome() {
	if r, ok := pick(c.w, c.outstanding()); ok {
		r.abandoned = true
		delete(c.open, r.number)
		c.w.note("%v abandons %v", c.id, r)
		c.taint(r)
		for _, stop := range r.stop {
			stop()
		}
	}
}

// setQuota gives a principal a small quota, or the default one.
func (c *member) setQuota() {
	quota := api.Quota{Handles: 2 + c.w.below(8), Waiters: 1 + c.w.below(3)}
	if c.w.percent(30) {
		quota = api.Quota{}
	}
	principal := c.w.principal()
	c.ask("set the quota of "+principal, 0, nil, func(ctx context.Context, m *Master, by session.Mutation) (any, error) {
		return m.epoch.propose(ctx, raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: by, Principal: principal, Quota: quota}}, nil)
	}, nil)
}

func (c *member) endSession() {
	c.die()
	m := c.master()
	c.w.work.Go(func() { _ = m.Sessions.End(c.w.ctx, c.id) })
}

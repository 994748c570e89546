package master

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// soloClient is a session whose calls the test makes.
type soloClient struct {
	m      *soloMaster
	who    Caller
	number api.RequestNumber
	acked  uint64
	grant  uint64

	mu   sync.Mutex // guards told
	told []*Event   // the events that keep has received
}

// client returns a session that may cache.
func (s *soloMaster) client(t *testing.T, nonce byte) *soloClient {
	t.Helper()
	return s.clientOf(t, nonce, func(*raftfsm.CreateSession) {})
}

// clientOf is client, of a session that is edited.
func (s *soloMaster) clientOf(t *testing.T, nonce byte, edit func(*raftfsm.CreateSession)) *soloClient {
	t.Helper()
	create := *cachingSession(nonce).CreateSession
	edit(&create)
	id, grant, err := s.Sessions.Create(t.Context(), create)
	noErr(t, err)
	return &soloClient{m: s, who: Caller{Session: id, Epoch: s.epoch.number}, grant: grant.Number}
}

// early makes a session in a state that has no master yet.
func early(t *testing.T, s *raftfsm.State, create raftfsm.Command) *soloClient {
	t.Helper()
	return &soloClient{who: Caller{Session: with(t, s, create)[0].Session, Epoch: 1}}
}

// mutation numbers the next request, beside others whose answers the client wants, too.
func (c *soloClient) mutation(beside ...session.Mutation) session.Mutation {
	c.number++
	by := session.Mutation{Session: c.who.Session, Number: c.number, HighestIssued: c.number, Hash: 1}
	for _, other := range beside {
		by.Outstanding = append(by.Outstanding, other.Number)
	}
	by.Outstanding = append(by.Outstanding, c.number)
	return by
}

func (c *soloClient) open(t *testing.T, path string, create api.Create) Opened {
	t.Helper()
	return c.opens(t, path, raftfsm.Open{Create: create})
}

func (c *soloClient) openEphemeral(t *testing.T, path string) Handle {
	t.Helper()
	return c.opens(t, path, raftfsm.Open{Create: api.MayCreate, Ephemeral: true}).Handle
}

func (c *soloClient) opens(t *testing.T, path string, create raftfsm.Open) Opened {
	t.Helper()
	return must(c.m.Files.Open(t.Context(), c.asked(path, create)))(t)
}

// asked returns a request to open a node for reading and writing: a file, unless create says otherwise.
func (c *soloClient) asked(path string, create raftfsm.Open) OpenRequest {
	mutation := c.mutation()
	create.Kind, create.Rights = cmp.Or(create.Kind, api.File), namespace.ToRead|namespace.ToWrite
	return OpenRequest{
		Mutation: mutation, Path: api.MustParsePath(path), Create: create,
		Handle: Handle{Owner: namespace.Owner{Session: c.who.Session, Handle: api.HandleID(mutation.Number)}, Rights: create.Rights},
	}
}

// watches opens a file for events of a kind; its lock may be kept unused if keeps.
func (c *soloClient) watches(t *testing.T, path string, kind api.EventKind, keeps bool) Handle {
	t.Helper()
	q := c.asked(path, raftfsm.Open{Create: api.MayCreate})
	q.Handle.Events, q.Handle.CachesLock = EventSet(0).With(kind), keeps
	return must(c.m.Files.Open(t.Context(), q))(t).Handle
}

// write begins a write; its result arrives in the channel.
func (c *soloClient) write(ctx context.Context, h Handle) <-chan error {
	by := c.mutation()
	return later(func() error { return c.set(ctx, by, h, nil) })
}

// later calls do in a goroutine; its result arrives in the channel.
func later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

// set writes the contents of a file.
func (c *soloClient) set(ctx context.Context, by session.Mutation, h Handle, contents []byte) error {
	command := raftfsm.Command{SetContents: &raftfsm.SetContents{Mutation: by, Node: h.Node, Contents: contents}}
	return errOf(c.m.Files.Change(ctx, h, namespace.ToWrite, by, command))
}

// remove deletes a node.
func (c *soloClient) remove(ctx context.Context, by session.Mutation, h Handle) error {
	command := raftfsm.Command{Delete: &raftfsm.Delete{Mutation: by, Node: h.Node, Handle: h.Owner.Handle}}
	return errOf(c.m.Files.Change(ctx, h, namespace.ToWrite, by, command))
}

// heard returns the receipt that its KeepAlives carry: it acknowledges what it has received.
func (c *soloClient) heard() Receipt {
	return Receipt{Received: c.acked, Acknowledged: c.acked, Grant: c.grant}
}

// hear sends a KeepAlive and returns its events, without acknowledging them.
func (c *soloClient) hear(t *testing.T) []*Event {
	t.Helper()
	reply := must(c.m.Sessions.KeepAlive(t.Context(), c.who, c.heard(), nil))(t)
	if g := reply.Grant; g != nil {
		c.grant = g.Number
	}
	return reply.Events
}

// acknowledge sends the KeepAlive that acknowledges, and leaves it parked.
func (c *soloClient) acknowledge(t *testing.T, events []*Event) {
	t.Helper()
	c.acked = events[len(events)-1].Sequence
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = c.m.Sessions.KeepAlive(ctx, c.who, c.heard(), nil) }()
	synctest.Wait()
	cancel()
	synctest.Wait()
}

func stillWaits(done <-chan error) bool {
	synctest.Wait()
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// KeepAlive serves a KeepAlive in one goroutine.
func (s *Sessions) KeepAlive(ctx context.Context, c Caller, h Receipt, conn Connection) (Extension, error) {
	k, err := s.Park(c, h, conn)
	if err != nil {
		return Extension{}, err
	}
	resumed := make(chan struct{})
	k.Notify(sync.OnceFunc(func() { close(resumed) }))
	select {
	case <-resumed:
	case <-ctx.Done():
	}
	return k.Finish(ctx)
}

func (c *soloClient) claim(h Handle, mode api.LockMode) raftfsm.Claim {
	return raftfsm.Claim{Mutation: c.mutation(), Handle: h.Owner.Handle, Mode: mode}
}

// requestFor returns a request for a lock. Its caller does not look at its place in the queue.
func requestFor(claim raftfsm.Claim, h Handle) AcquireRequest {
	return AcquireRequest{LockRequest: LockRequest{Claim: claim}, Handle: h, Queued: func(Queued) error { return nil }}
}

func (r AcquireRequest) quietIf(quiet bool) AcquireRequest {
	r.Quiet = quiet
	return r
}

func (r AcquireRequest) detectIf(detect bool) AcquireRequest {
	r.Detects = detect
	return r
}

func (c *soloClient) try(t *testing.T, h Handle, mode api.LockMode) raftfsm.Answer {
	t.Helper()
	claim := c.claim(h, mode)
	return must(c.m.Locks.TryAcquire(t.Context(), requestFor(claim, h)))(t)
}

// wait asks for a lock and waits in its queue; the answer arrives in the channel.
func (c *soloClient) wait(ctx context.Context, h Handle, claim raftfsm.Claim) <-chan lockAnswer {
	return c.waits(ctx, requestFor(claim, h))
}

func (c *soloClient) waits(ctx context.Context, r AcquireRequest) <-chan lockAnswer {
	done := make(chan lockAnswer, 1)
	go func() {
		a, err := c.m.Locks.Acquire(ctx, r)
		done <- lockAnswer{a, err}
	}()
	synctest.Wait()
	return done
}

type lockAnswer struct {
	raftfsm.Answer
	err error
}

// answered returns what is in the channel by now.
func answered(t *testing.T, done <-chan lockAnswer) lockAnswer {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	select {
	case a := <-done:
		return a
	default:
		t.Fatal("no answer")
		return lockAnswer{}
	}
}

// note records an event.
func (c *soloClient) note(e *Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, e)
}

// conflicts returns the events received about conflicting requests.
func (c *soloClient) conflicts() []*Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.told), func(e *Event) bool { return e.Kind != api.EventConflictingLock })
}

// keep keeps a session alive, and drops what the master tells it to, until ctx ends.
func (c *soloClient) keep(ctx context.Context) {
	for ctx.Err() == nil {
		reply, err := c.m.Sessions.KeepAlive(ctx, c.who, c.heard(), nil)
		if err != nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if g := reply.Grant; g != nil {
			c.grant = g.Number
		}
		for _, e := range reply.Events {
			if e.Sequence > c.acked {
				c.acked = e.Sequence
				c.note(e)
			}
		}
	}
}

package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// mark says that an operator has chosen a candidate, and when. The later one counts.
type mark struct {
	Reign uint64 `json:"reign"` // the token of the lock then
	Turn  int    `json:"turn"`  // counts those who were chosen in that reign
}

// rank orders the candidates of an election.
type rank struct {
	chosen   mark // zero: nobody has chosen it
	priority int
}

func (r record) rank() rank {
	k := rank{priority: r.Priority}
	if r.Chosen != nil {
		k.chosen = *r.Chosen
	}
	return k
}

// room refuses a candidate whose record would be too large for a file once it says that the candidate was chosen,
// or elected: if a primary could not say that it is one, those of lower rank would take it for a candidate.
func (r record) room() error {
	value := len(r.value())
	r.Chosen, r.Elected = &mark{Reign: api.MaxGeneration, Turn: math.MaxInt}, api.MaxGeneration
	if n := len(r.text()); n > api.MaxContents {
		return api.Errorf(api.TooLarge, "the value has %d bytes, and with it the candidate is registered by a record of up to %d; a file holds at most %d",
			value, n, api.MaxContents)
	}
	return nil
}

func (k rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(k.chosen.Reign, o.chosen.Reign), cmp.Compare(k.chosen.Turn, o.chosen.Turn), cmp.Compare(k.priority, o.priority))
}

// candidatesOf returns the directory in which the candidates of an election are registered.
func candidatesOf(path string) string { return path + ".candidates" }

// Candidate is one who takes part in an election.
type Candidate struct {
	Member
	Priority int
	Rank     int  // 1 is the next primary; those of the same rank come in the order in which they wait for the lock. 0 of the primary
	Chosen   bool // by Nominate or HandOver, for the next reign
	Primary  bool // it is the primary
}

// Candidates lists who takes part in an election: the primary first, then by rank, and those of the same rank in the
// order in which they wait for the lock, as far as the cell lists who waits (api.MaxListed); those who do not wait
// come last. The value of the primary is the contents of the file. A primary that does not use Campaign is listed with its session, and has
// no Name. It costs what Members does, and four calls.
func Candidates(ctx context.Context, c *client.Client, path string) ([]Candidate, error) {
	list, err := candidates(ctx, c, path)
	return list, ended(ctx, err, "list candidates", path)
}

func candidates(ctx context.Context, c *client.Client, path string) ([]Candidate, error) {
	entries, err := newRoster(c, candidatesOf(path)).once(ctx)
	if err != nil && !errors.Is(err, api.NotFound) {
		return nil, err
	}
	explained, err := c.Cell().Explain(ctx, path)
	if err != nil {
		return nil, err
	}
	var list, primary []Candidate
	ranks := map[string]rank{}
	for _, e := range announced(entries) {
		one := Candidate{Member: e.member(), Priority: e.record.Priority, Chosen: e.record.Chosen != nil}
		if e.record.Elected != 0 {
			if e.record.Elected == uint64(explained.Lock.Generation) && len(explained.Lock.Holders) > 0 {
				one.Primary, one.Chosen = true, false
				if one.Value, err = valueOf(ctx, c, path, one.Value); err != nil {
					return nil, err
				}
				primary = append(primary, one)
			}
			continue
		}
		ranks[one.Name] = e.record.rank()
		list = append(list, one)
	}
	queue := placesOf(explained.Lock)
	slices.SortStableFunc(list, func(a, b Candidate) int {
		return cmp.Or(ranks[b.Name].compare(ranks[a.Name]), cmp.Compare(queue(a), queue(b)))
	})
	if len(primary) == 0 && len(explained.Lock.Holders) > 0 {
		var one Candidate
		if one, list, err = stranger(ctx, c, path, explained.Lock.Holders[0], list); err != nil {
			return nil, err
		}
		primary = []Candidate{one}
	}
	for i := range list {
		if list[i].Rank = i + 1; i > 0 && ranks[list[i].Name] == ranks[list[i-1].Name] {
			list[i].Rank = list[i-1].Rank
		}
	}
	return append(primary, list...), nil
}

// placesOf returns the places of candidates in the queue for a lock. Those of one session have one, the first.
func placesOf(l client.LockInfo) func(k Candidate) int {
	places := map[api.SessionID]int{}
	for i, w := range l.Waiters {
		if _, ok := places[w.Session]; !ok {
			places[w.Session] = i
		}
	}
	return func(k Candidate) int {
		if at, ok := places[k.Session]; ok {
			return at
		}
		return math.MaxInt
	}
}

// stranger returns a primary that has not said that it is the primary, and the other candidates: one on the list that
// has not said so yet, or one that is not registered.
func stranger(ctx context.Context, c *client.Client, path string, who api.Holder, list []Candidate) (one Candidate, others []Candidate, err error) {
	if at := slices.IndexFunc(list, func(o Candidate) bool { return o.Session == who.Session }); at >= 0 {
		one = list[at]
		one.Primary, one.Chosen = true, false
		return one, slices.Delete(list, at, at+1), nil
	}
	one = Candidate{Member: Member{Session: who.Session, Host: who.Host, PID: who.PID}, Primary: true}
	one.Value, err = valueOf(ctx, c, path, nil)
	return one, list, err
}

// valueOf returns the contents of an election's file, or known if there is none any more. A primary may have
// changed its value since it was a candidate (Primary.SetValue).
func valueOf(ctx context.Context, c *client.Client, path string, known []byte) ([]byte, error) {
	h, err := c.Open(ctx, path, client.OpenOptions{Read: true})
	if err == nil {
		defer leave(ctx, h)
		var text []byte
		if text, _, err = h.Contents(ctx); err == nil {
			return text, nil
		}
	}
	if gone(err) {
		return known, nil
	}
	return nil, err
}

// Nominate chooses the candidate who is to be the next primary, as an operator's act: it ranks before
// all others until there is a primary, and the present primary's Asked is closed. Of several who are
// chosen the last one counts. If no candidate has that name, it is NotFound, which names those who are
// there. Nil also if it has become the primary meanwhile.
func Nominate(ctx context.Context, c *client.Client, path, name string) error {
	return ended(ctx, nominate(ctx, c, path, name), "nominate "+name, path)
}

func nominate(ctx context.Context, c *client.Client, path, name string) error {
	r := newRoster(c, candidatesOf(path))
	for again := false; ; again = true {
		before, err := c.Cell().Explain(ctx, path)
		if err != nil {
			return err
		}
		list, err := r.once(ctx)
		if err != nil && !errors.Is(err, api.NotFound) {
			return err
		}
		list = announced(list)
		at := slices.IndexFunc(list, func(e *entry) bool { return e.name == name })
		if at < 0 {
			return unknownCandidate(path, name, list)
		}
		switch elected, reign := list[at].record.Elected, uint64(before.Lock.Generation); {
		case elected > reign, again && elected == reign:
			return nil // it has become the primary meanwhile
		case elected != 0:
			return unknownCandidate(path, name, list)
		}
		chosen := mark{Reign: uint64(before.Lock.Generation), Turn: 1}
		for _, e := range list {
			if m := e.record.Chosen; m != nil && m.Reign == chosen.Reign && m.Turn >= chosen.Turn {
				chosen.Turn = m.Turn + 1
			}
		}
		err = remark(ctx, c, r.dir, list[at], &chosen)
		if gone(err) || errors.Is(err, api.GenerationMismatch) || errors.Is(err, api.Exists) {
			continue // look again
		}
		if err != nil {
			return err
		}
		// A new primary takes what was chosen before its reign for what led to it. Whether it is the one that was
		// chosen, its session does not tell: it may have several candidates.
		after, err := c.Cell().Explain(ctx, path)
		if err != nil || after.Lock.Generation == before.Lock.Generation {
			return err
		}
	}
}

func holds(l client.LockInfo, session api.SessionID) bool {
	return slices.ContainsFunc(l.Holders, func(h api.Holder) bool { return h.Session == session })
}

func unknownCandidate(path, name string, list []*entry) error {
	var there []string
	for _, e := range list {
		if e.record.Elected == 0 {
			there = append(there, e.name)
		}
	}
	who := "nobody waits to be elected"
	if len(there) > 0 {
		who = "waiting to be elected: " + strings.Join(there, ", ")
	}
	return &api.Error{Code: api.NotFound, Op: "nominate", Path: path, Message: fmt.Sprintf("%q is no candidate; %s", name, who)}
}

// remark changes whether a candidate is chosen, if its file is still as it was read.
func remark(ctx context.Context, c *client.Client, dir string, e *entry, chosen *mark) error {
	h, err := c.Open(ctx, dir+"/"+e.name, client.OpenOptions{Write: true, Kind: api.File})
	if err != nil {
		return err
	}
	defer leave(ctx, h)
	r := e.record
	r.Chosen = chosen
	_, err = h.SetContents(ctx, r.text(), client.IfGeneration(e.content))
	return err
}

// ghosts are sessions that are over, whose candidates' files are there still, because a reader has them open.
// No session has the number of one before.
type ghosts struct {
	mu   sync.Mutex // guards over
	over map[api.SessionID]bool
}

func newGhosts() *ghosts { return &ghosts{over: map[api.SessionID]bool{}} }

// has reports whether the session of a record is known to be over.
func (g *ghosts) has(r record) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over[r.session()]
}

// find asks the cell whether the session of a candidate, who was listed before, is over.
func (g *ghosts) find(ctx context.Context, c *client.Client, r record) (over bool, err error) {
	_, found, err := c.Cell().FindSession(ctx, r.session())
	if err != nil || found {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over[r.session()] = true
	return true, nil
}

// keep forgets those whose files are gone.
func (g *ghosts) keep(list []*entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.over, func(id api.SessionID, _ bool) bool {
		return !slices.ContainsFunc(list, func(e *entry) bool { return e.record.session() == id })
	})
}

// standing is whether a candidate may queue for the lock, as far as it knows.
type standing struct {
	mu      sync.Mutex // guards what follows
	looks   uint64     // begun
	newest  uint64     // look that was taken into account
	free    context.Context
	busy    context.CancelCauseFunc // ends free; nil while another ranks before
	err     error                   // why the candidate stands no more: looking failed, or its registration ended
	changed chan struct{}           // closed and replaced when any of these changes
}

func newStanding() *standing { return &standing{changed: make(chan struct{})} }

// begin numbers a look, so that what came of an older one does not undo what came of a newer.
func (s *standing) begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return s.looks
}

// outranked is the cause of the end of a candidate's turn.
func outranked() error { return api.Errorf(api.Cancelled, "another candidate ranks before this one") }

// found takes note of what came of a look.
func (s *standing) found(look uint64, behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if look <= s.newest || s.err != nil {
		return
	}
	s.newest = look
	switch {
	case behind && s.busy != nil:
		s.busy(outranked())
		s.free, s.busy = nil, nil
	case !behind && s.busy == nil:
		s.free, s.busy = context.WithCancelCause(context.Background())
	default:
		return
	}
	s.broadcast()
}

// fail takes note that there will be no more looks, or that the candidate is not registered any more. The first
// error counts.
func (s *standing) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	if s.busy != nil {
		s.busy(err)
	}
	s.broadcast()
}

func (s *standing) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitTurn waits until nobody ranks before the candidate, and returns a context that ends when somebody does.
func (s *standing) awaitTurn(ctx context.Context) (context.Context, error) {
	for {
		s.mu.Lock()
		free, err, changed := s.free, s.err, s.changed
		s.mu.Unlock()
		if free != nil || err != nil {
			return free, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

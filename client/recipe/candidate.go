package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/hold"
)

// mark says that an operator has chosen a candidate. The later mark counts.
type mark struct {
	Token uint64 `json:"reign"` // of the lock then
	Turn  int    `json:"turn"`  // counts choices in that reign
}

type rank struct {
	chosen   mark // zero: not chosen
	priority int
}

func (r record) rank() rank { return rank{r.Chosen, r.Priority} }

// room rejects a candidate whose record would exceed a file once it says "chosen" or "elected". Candidates of
// lower rank would overlook a primary that cannot say so.
func (r record) room() error {
	value := len(r.value())
	r.Chosen, r.Elected = mark{Token: api.MaxGeneration, Turn: math.MaxInt}, api.MaxGeneration
	if n := len(r.text()); n > api.MaxContents {
		return api.Errorf(api.TooLarge, "the value has %d bytes, and with it the candidate is registered by a record of up to %d; a file holds at most %d",
			value, n, api.MaxContents)
	}
	return nil
}

func (k rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(k.chosen.Token, o.chosen.Token), cmp.Compare(k.chosen.Turn, o.chosen.Turn), cmp.Compare(k.priority, o.priority))
}

func candidatesOf(path string) string { return path + ".candidates" }

// Candidate is a participant in an election.
type Candidate struct {
	Member
	Priority int
	Rank     int  // 1 is the next primary; equal ranks come in lock-queue order; 0 for the primary
	Chosen   bool // for the next reign, by Nominate or HandOver
	Primary  bool
}

// Candidates lists the participants of an election: the primary first, then by rank. Equal ranks come in
// lock-queue order, as far as the cell lists it (api.MaxListed); candidates that do not wait come last. The
// primary's value is the contents of the file. A primary without Campaign has no Name. The cost is that of
// Members and four calls.
func Candidates(ctx context.Context, c *client.Client, path string) ([]Candidate, error) {
	list, err := candidates(ctx, c, path)
	return list, hold.Ended(ctx, err, "list candidates", path)
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
		one := Candidate{Member: e.member(), Priority: e.record.Priority, Chosen: e.record.Chosen != mark{}}
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

// placesOf returns candidates' places in a lock's queue, for comparison. Candidates of one session share the
// first.
func placesOf(l client.LockInfo) func(k Candidate) int {
	places := map[api.SessionID]int{}
	for i, w := range slices.Backward(l.Waiters) {
		places[w.Session] = i - len(l.Waiters)
	}
	return func(k Candidate) int { return places[k.Session] } // 0, after all, of one that does not wait
}

// stranger returns a primary that has not declared itself, listed or unregistered, and the other candidates.
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

// valueOf returns the contents of an election's file, which the primary may have changed (Primary.SetValue),
// or known if the file is gone.
func valueOf(ctx context.Context, c *client.Client, path string, known []byte) ([]byte, error) {
	text, _, err := c.Get(ctx, path)
	if hold.Gone(err) {
		return known, nil
	}
	return text, err
}

// Nominate chooses the next primary, as an operator's act. The candidate ranks first until there is a
// primary, and the present primary's Asked is closed. The last choice counts. If no candidate has that name,
// the error is NotFound and names the candidates. Nil can also mean that it is the primary already.
func Nominate(ctx context.Context, c *client.Client, path, name string) error {
	return hold.Ended(ctx, nominate(ctx, c, path, name), "nominate "+name, path)
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
			return nil // it is the primary already
		case elected != 0:
			return unknownCandidate(path, name, list)
		}
		chosen := mark{Token: uint64(before.Lock.Generation), Turn: 1}
		for _, e := range list {
			if m := e.record.Chosen; m.Token == chosen.Token && m.Turn >= chosen.Turn {
				chosen.Turn = m.Turn + 1
			}
		}
		err = remark(ctx, c, r.dir, list[at], chosen)
		if hold.Gone(err) || errors.Is(err, api.GenerationMismatch) || errors.Is(err, api.Exists) {
			continue
		}
		if err != nil {
			return err
		}
		// A new primary takes earlier marks as the reason for its reign. Its session, which may have several
		// candidates, does not tell whether it is the chosen one.
		after, err := c.Cell().Explain(ctx, path)
		if err != nil || after.Lock.Generation == before.Lock.Generation {
			return err
		}
	}
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

// remark changes whether a candidate is chosen, if its file is unchanged.
func remark(ctx context.Context, c *client.Client, dir string, e *entry, chosen mark) error {
	r := e.record
	r.Chosen = chosen
	_, err := c.Put(ctx, dir+"/"+e.name, r.text(), client.IfGeneration(e.content))
	return err
}

// standing is whether a candidate may queue for the lock, to its knowledge.
type standing struct {
	mu     sync.Mutex // guards all below
	looks  uint64
	newest uint64                  // the newest look applied
	turn   context.Context         //nolint:containedctx // ends when a candidate ranks before this one; nil while one does
	end    context.CancelCauseFunc // ends turn
	began  chan struct{}           // closed and replaced when turn begins
}

// begin numbers a look, so that an older result does not overwrite a newer one.
func (s *standing) begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return s.looks
}

func (s *standing) found(look uint64, behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if look <= s.newest {
		return
	}
	s.newest = look
	switch {
	case behind && s.turn != nil:
		s.end(api.Errorf(api.Cancelled, "another candidate ranks before this one"))
		s.turn = nil
	case !behind && s.turn == nil:
		s.turn, s.end = context.WithCancelCause(context.Background())
		close(s.began)
		s.began = make(chan struct{})
	}
}

// awaitTurn waits until no candidate ranks before this one. Its context ends when one does.
func (s *standing) awaitTurn(ctx context.Context) (context.Context, error) {
	for {
		s.mu.Lock()
		turn, began := s.turn, s.began
		s.mu.Unlock()
		if turn != nil {
			return turn, ctx.Err()
		}
		select {
		case <-began:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

package cell_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
)

var (
	histories    = flag.Int("histories", 2, "how many histories of replicas that come and go TestMemberHistories makes")
	firstHistory = flag.Uint64("history", 1, "the seed of the first of them")
)

// Replicas are added, replaced, removed and stand by, while any of them are away: killed, or cut off; IDs and addresses are used again. Whatever
// has happened, a majority of the present replicas that can reach each other has a master soon, and what was acknowledged is there; a replica that was removed never counts
// again; and in the end every present replica finds its way back.
func TestMemberHistories(t *testing.T) {
	for n := range *histories {
		seed := *firstHistory + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newHistory(t, seed).run() })
		})
	}
}

// history is one of them.
type history struct {
	t       *testing.T
	c       *celltest.Cell
	rng     *rand.Rand
	dir     string
	hosts   map[string]string             // of every replica that there has been
	away    map[string]string             // how a replica is away
	present []string                      // the replicas with a vote, when that was last asked
	waiting map[string]context.CancelFunc // stops a replica that was started as a newcomer, and may still wait to be let in
	gone    map[string]bool               // replicas whose host or directory another one has now
	acked   []string
	files   int
	steps   []string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, rng: rand.New(rand.NewPCG(seed, 27)), dir: t.TempDir(), hosts: map[string]string{}, away: map[string]string{},
		waiting: map[string]context.CancelFunc{}, gone: map[string]bool{},
	}
	size, oldLists, replaceAfter := 3+h.rng.IntN(3), h.rng.IntN(2) == 0, time.Hour
	if h.rng.IntN(2) == 0 {
		replaceAfter = time.Minute
	}
	var founders []cell.Member
	h.c = celltest.Start(t, size, func(cfg *cell.Config) {
		cfg.Data, cfg.ReplaceAfter = filepath.Join(h.dir, cfg.ID), replaceAfter
		if cfg.Bootstrap {
			founders = cfg.Members
			return
		}
		known := cfg.Members
		if oldLists { // nobody has brought them up to date
			known = founders
		}
		cfg.Members = listOf(cfg.ID, cfg.Members, known)
	})
	for i := range size {
		id := fmt.Sprintf("r%d", i+1)
		h.hosts[id] = id
	}
	h.note("%d replicas, old lists %v, a spare takes a place after %v", size, oldLists, replaceAfter)
	return h
}

// listOf is the list of members that a replica is configured with: itself, and of those that are known the last one at each address.
func listOf(id string, all, known []cell.Member) []cell.Member {
	list := []cell.Member{all[slices.IndexFunc(all, func(m cell.Member) bool { return m.ID == id })]}
	for _, m := range slices.Backward(known) {
		if !slices.ContainsFunc(list, func(o cell.Member) bool { return o.ID == m.ID || o.Raft == m.Raft }) {
			list = append(list, m)
		}
	}
	return list
}

func (h *history) note(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
	h.t.Logf(format, args...)
}

// fail ends the test with all that has happened.
func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	var now []string
	for id := range h.hosts {
		if r := h.c.Replica(id); r != nil {
			now = append(now, fmt.Sprintf("%s (%s): %+v %v", id, h.away[id], r.Health(), r.Err()))
		}
	}
	slices.Sort(now)
	h.t.Fatalf("%s\nhistory: %s\nnow: %s", fmt.Sprintf(format, args...), strings.Join(h.steps, "; "), strings.Join(now, "\n     "))
}

func (h *history) run() {
	defer func() {
		for _, stop := range h.waiting {
			stop()
		}
	}()
	steps := []func(){
		h.write, h.write, h.goAway, h.goAway, h.goAway, h.comeBack, h.comeBack, h.replace, h.replace, h.replace, h.add, h.remove, h.takeBack, h.takeBack,
		h.standBy, h.transfer, h.failOver, h.demand, h.demand, h.haunt, h.useAgain,
	}
	for range 14 {
		steps[h.rng.IntN(len(steps))]()
		time.Sleep(time.Duration(h.rng.IntN(20_000)) * time.Millisecond)
	}
	h.demand()
	h.end()
}

// within runs f with a client of its own, for a while at most.
func (h *history) within(limit time.Duration, f func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), limit)
	defer cancel()
	cl, err := client.New(ctx, client.Config{Servers: h.c.Servers(), Dialer: h.c.DialFrom("client"), Clock: celltest.Clock, NoCache: true})
	if err != nil {
		return err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = cl.Close(late) // the cell may be cut off
	}()
	return f(ctx, cl)
}

// write creates a file, which is to stay if that is acknowledged.
func (h *history) write() {
	h.files++
	name := fmt.Sprintf("f%d", h.files)
	err := h.within(30*time.Second, func(ctx context.Context, cl *client.Client) error {
		_, err := cl.Put(ctx, "/ls/local/"+name, []byte(name))
		return err
	})
	if err == nil {
		h.acked = append(h.acked, name)
	}
	h.note("write %s %v", name, api.CodeOf(err))
}

// serves returns nil if the cell shows all that it acknowledged.
func (h *history) serves(limit time.Duration) error {
	return h.within(limit, func(ctx context.Context, cl *client.Client) error {
		list, err := cl.List(ctx, "/ls/local")
		if err != nil {
			return err
		}
		for _, name := range h.acked {
			if !slices.ContainsFunc(list, func(s api.Stat) bool { return s.Path.Base() == name }) {
				return fmt.Errorf("%s was acknowledged and is lost", name)
			}
		}
		return nil
	})
}

// look has the replicas with a vote in h.present, as the master has them, and reports whether no change of them is under way.
func (h *history) look() (settled bool) {
	var newest uint64
	for id := range h.hosts {
		r := h.c.Replica(id)
		if r == nil || h.away[id] != "" {
			continue
		}
		if is := r.Health(); is.Role == "master" && is.Epoch > newest {
			newest = is.Epoch
			h.present, settled = cell.Voters(r)
		}
	}
	return settled && newest > 0
}

// awaitSettled waits until no change is under way, for a while.
func (h *history) awaitSettled(limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Second) {
		if h.look() {
			return true
		}
	}
	return false
}

func (h *history) pick(from []string) (string, bool) {
	if len(from) == 0 {
		return "", false
	}
	slices.Sort(from)
	return from[h.rng.IntN(len(from))], true
}

// demand leaves a majority of the present replicas, which can reach each other, and the cell has to serve.
func (h *history) demand() {
	if !h.awaitSettled(time.Minute) {
		h.comeAll()
		if !h.awaitSettled(2 * time.Minute) {
			h.note("a change does not go on")
			return
		}
	}
	if r := h.c.Replica(h.master()); r != nil {
		if strays := cell.Strays(r); len(strays) > 0 {
			h.fail("%v vote, and of %v the roster says something else", h.present, strays)
		}
	}
	some := slices.Clone(h.present)
	slices.Sort(some)
	h.rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some, rest := some[:len(some)/2+1], some[len(some)/2+1:]
	first := h.rng.IntN(2) == 0
	if first {
		h.each(some, h.back)
	}
	h.each(rest, h.leave)
	if !first {
		h.each(some, h.back)
	}
	h.note("%v have to serve", some)
	if err := h.serves(3 * time.Minute); err != nil {
		h.fail("%v are a majority of %v, and do not serve: %v", some, h.present, err)
	}
}

func (h *history) each(ids []string, do func(id string)) {
	for _, id := range ids {
		do(id)
	}
}

// comeAll has all come back that may be present.
func (h *history) comeAll() {
	h.note("all come back")
	h.each(slices.Sorted(maps.Keys(h.away)), h.back)
}

// end has all come back, and checks that they find their way.
func (h *history) end() {
	h.comeAll()
	if err := h.serves(5 * time.Minute); err != nil {
		h.fail("all are back, and do not serve: %v", err)
	}
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		lost := h.lost()
		if len(lost) == 0 {
			return
		}
		if time.Now().After(end) {
			h.fail("of %v these do not find their way back: %v", h.present, lost)
		}
	}
}

// lost returns the present replicas that follow no master.
func (h *history) lost() []string {
	h.look()
	return slices.DeleteFunc(slices.Clone(h.present), func(id string) bool {
		r := h.c.Replica(id)
		return r != nil && r.Health().Ready
	})
}

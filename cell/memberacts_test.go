package cell_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// What is done to the replicas in a history.

// leave makes a replica go away, in some way.
func (h *history) leave(id string) {
	if h.away[id] != "" || h.gone[id] {
		return
	}
	how := pick(h.rng, "killed", "killed", "isolated", "cut off")
	h.note("%s is %s", id, how)
	h.away[id] = how
	switch how {
	case "isolated":
		h.c.Isolate(h.hosts[id])
	case "cut off":
		h.c.Cut(h.hosts[id])
	default:
		h.kill(id)
	}
}

func (h *history) kill(id string) {
	if stop := h.waiting[id]; stop != nil {
		stop()
		delete(h.waiting, id)
		synctest.Wait()
	}
	if h.c.Replica(id) != nil {
		h.c.Kill(id)
	}
}

// back has a replica come back.
func (h *history) back(id string) {
	how := h.away[id]
	if how == "" || h.gone[id] {
		return
	}
	h.note("%s is back", id)
	delete(h.away, id)
	switch how {
	case "isolated":
		h.c.Rejoin(h.hosts[id])
	case "cut off":
		h.c.Heal(h.hosts[id])
	default:
		h.start(id)
	}
}

// start starts a replica, which may wait to be let in, or refuse to start.
func (h *history) start(id string) {
	ctx, stop := context.WithCancel(h.t.Context())
	h.waiting[id] = stop
	host := h.hosts[id] // the history goes on, and adds to the map
	go func() {
		if err := h.c.JoinAt(ctx, id, host); err != nil {
			h.t.Log(err)
		}
	}()
	time.Sleep(time.Second)
}

func (h *history) goAway() {
	h.look()
	one, ok := h.pick(slices.DeleteFunc(slices.Clone(h.present), func(id string) bool { return h.away[id] != "" }))
	up := 0
	for _, id := range h.present {
		if h.away[id] == "" {
			up++
		}
	}
	if ok && (up-1 > len(h.present)/2 || h.rng.IntN(8) == 0) {
		h.leave(one)
	}
}

func (h *history) comeBack() {
	if one, ok := h.pick(slices.Collect(maps.Keys(h.away))); ok && slices.Contains(h.present, one) {
		h.back(one)
	}
}

// haunt has a replica that was removed come back.
func (h *history) haunt() {
	h.look()
	ghosts := slices.DeleteFunc(slices.Collect(maps.Keys(h.away)), func(id string) bool { return slices.Contains(h.present, id) })
	if one, ok := h.pick(ghosts); ok {
		h.note("it may have been removed")
		h.back(one)
	}
}

// newcomer starts another replica, on a host of its own or that of one that is no replica any more, and returns its ID.
func (h *history) newcomer() string {
	id := fmt.Sprintf("r%d", len(h.hosts)+1)
	host := id
	if h.rng.IntN(3) == 0 && h.awaitSettled(10*time.Second) {
		old, ok := h.pick(slices.DeleteFunc(slices.Collect(maps.Keys(h.hosts)), func(id string) bool {
			return slices.Contains(h.present, id) || h.gone[id] || h.waiting[id] != nil
		}))
		if ok {
			host = h.hosts[old]
			h.kill(old)
			h.c.Rejoin(host)
			delete(h.away, old)
			h.gone[old] = true
			h.note("%s has the host of %s", id, old)
		}
	}
	h.hosts[id] = host
	h.start(id)
	return id
}

// change asks for a change, and waits for it, for a while and not always.
func (h *history) change(what string, change client.MemberChange) error {
	err := h.within(40*time.Second, func(ctx context.Context, cl *client.Client) error { return client.ChangeMembers(ctx, cl, change, nil) })
	h.note("%s %s %s %v", what, change.Add, change.Remove, api.CodeOf(err))
	if err == nil && h.rng.IntN(5) > 0 {
		h.awaitSettled(time.Duration(h.rng.IntN(60)) * time.Second)
	}
	return err
}

func (h *history) addOne(what string, change client.MemberChange) {
	change.Add = h.newcomer()
	change.Raft = h.hosts[change.Add] + ":7431"
	if err := h.change(what, change); err != nil && !errors.Is(err, api.Uncertain) && api.CodeOf(err) != api.DeadlineExceeded {
		h.kill(change.Add) // it is never let in
		h.gone[change.Add] = true
	}
}

func (h *history) replace() {
	h.look()
	if old, ok := h.pick(slices.Clone(h.present)); ok {
		h.addOne("replace", client.MemberChange{Remove: old})
	}
}

func (h *history) add() {
	if h.look(); len(h.present) < 5 {
		h.addOne("add", client.MemberChange{})
	}
}

func (h *history) standBy() { h.addOne("stand by", client.MemberChange{Spare: true}) }

func (h *history) remove() {
	if h.look(); len(h.present) > 3 {
		old, _ := h.pick(slices.Clone(h.present))
		_ = h.change("remove", client.MemberChange{Remove: old}) // it may be refused
	}
}

// takeBack has a replica leave, which is soon taken back, maybe at another master while the first one still asks who may go; and the first one leads again.
func (h *history) takeBack() {
	if h.look(); len(h.present) <= 3 {
		return
	}
	old, _ := h.pick(slices.Clone(h.present))
	soon := func() { time.Sleep(time.Duration(h.rng.IntN(400)) * time.Millisecond) }
	ask := func(change client.MemberChange) error {
		return h.within(40*time.Second, func(ctx context.Context, cl *client.Client) error { return client.ChangeMembers(ctx, cl, change, nil) })
	}
	h.note("remove %s %v", old, api.CodeOf(ask(client.MemberChange{Remove: old})))
	soon()
	first := h.master()
	other, _ := h.pick(slices.DeleteFunc(slices.Clone(h.present), func(id string) bool { return h.away[id] != "" || id == first || id == old }))
	moves := first != "" && other != "" && h.rng.IntN(4) > 0
	if moves {
		h.note("%s gives way to %s %v", first, other, h.c.Replica(first).Transfer(h.t.Context(), other))
	}
	h.note("keep %s %v", old, api.CodeOf(ask(client.MemberChange{Keep: old}))) // it may have left
	soon()
	if r := h.c.Replica(h.master()); moves && r != nil {
		h.note("and back: %v", r.Transfer(h.t.Context(), first))
	}
}

// master returns which replica says that it is the master, and can be reached.
func (h *history) master() string {
	for _, id := range slices.Sorted(maps.Keys(h.hosts)) {
		if r := h.c.Replica(id); r != nil && h.away[id] == "" && r.Health().Role == "master" {
			return id
		}
	}
	return ""
}

func (h *history) transfer() {
	h.look()
	to, _ := h.pick(slices.DeleteFunc(slices.Clone(h.present), func(id string) bool { return h.away[id] != "" }))
	err := h.within(20*time.Second, func(ctx context.Context, cl *client.Client) error { _, err := cl.Transfer(ctx, to); return err })
	h.note("transfer to %s %v", to, api.CodeOf(err))
}

func (h *history) failOver() {
	if id := h.master(); id != "" {
		h.note("the master %s dies, and comes back", id)
		h.kill(id)
		time.Sleep(time.Duration(h.rng.IntN(10_000)) * time.Millisecond)
		h.start(id)
	}
}

// useAgain starts a replica with an empty directory under an ID that was used before. It never gets in.
func (h *history) useAgain() {
	if !h.awaitSettled(10 * time.Second) {
		return
	}
	old, ok := h.pick(slices.DeleteFunc(slices.Collect(maps.Keys(h.hosts)), func(id string) bool { return slices.Contains(h.present, id) || h.gone[id] }))
	if !ok {
		return
	}
	h.kill(old)
	h.c.Rejoin(h.hosts[old])
	delete(h.away, old)
	h.gone[old] = true
	noErr(h.t, os.RemoveAll(filepath.Join(h.dir, old)))
	h.start(old)
	err := h.change("use again", client.MemberChange{Add: old, Raft: h.hosts[old] + ":7431"})
	if err == nil {
		h.fail("the ID %s was used before, and is added", old)
	}
	h.kill(old)
}

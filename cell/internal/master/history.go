package master

import (
	"context"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// History is how the lock of a node was held.
type History struct {
	Holdings    []api.Holding // ended ones, the latest last; then current ones, at most api.MaxListed
	MoreHolders int           // unlisted current ones
}

// History returns the holders of a lock, current and remembered ones.
func (in *Inspector) History(ctx context.Context, path api.Path) (h History, err error) {
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return h, err
	}
	done, err := in.waitForPage(ctx)
	if err != nil {
		return h, err
	}
	defer done()
	state := in.epoch.state()
	if sight := in.sightOf(state); !sight.reads(path.Name()) {
		return h, sight.refuse(path.String())
	}
	if state.Level < raftfsm.HistoryLevel {
		return h, raftfsm.NeedsLevel(raftfsm.HistoryLevel, state.Level)
	}
	node, there := state.Tree.Get(path.Name())
	if !there {
		return h, &refusal.Refusal{Cause: refusal.PathUnknown, Path: path.Parent().String()}
	}
	for _, one := range state.Ended(node) {
		h.Holdings = append(h.Holdings, *one)
	}
	listed := min(len(node.Holders), api.MaxListed)
	h.MoreHolders = len(node.Holders) - listed
	for _, one := range node.Holders[:listed] {
		who := in.epoch.holder(state, one)
		h.Holdings = append(h.Holdings, api.Holding{
			Session: who.Session, Principal: who.Principal, Host: who.Host, PID: who.PID,
			Mode: node.Mode, Generation: node.Lock, FromUnix: who.SinceUnix, Reason: who.Reason,
		})
	}
	return h, nil
}

package cell

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/peer"
)

// levelProbeLimit is how long the master waits for a replica's feature level: a running one answers within
// milliseconds.
const levelProbeLimit = 2 * time.Second

// Levels implements wire.Replica. It asks every configured member anew: an older binary may have replaced one.
func (s served) Levels(ctx context.Context) ([]api.MemberLevel, error) {
	r := s.r
	configuration := r.raft.GetConfiguration()
	if err := configuration.Error(); err != nil {
		return nil, &api.Error{Code: api.Unavailable, Message: "the members of the cell are not known", Err: err}
	}
	servers := configuration.Configuration().Servers
	answers := make(chan api.MemberLevel, len(servers)) // one of each
	members := map[string]int{}
	for _, server := range servers {
		id := string(server.ID)
		members[id] = 0
		if id == r.cfg.ID {
			answers <- api.MemberLevel{ID: id, MaxLevel: r.cfg.supports}
			continue
		}
		r.prober.Ask(id, string(server.Address), func(report peer.Report) {
			answers <- api.MemberLevel{ID: id, MaxLevel: int(report.MaxLevel)}
		})
	}
	late := time.NewTimer(levelProbeLimit)
	defer late.Stop()
	for range servers {
		select {
		case one := <-answers:
			members[one.ID] = one.MaxLevel
			continue
		case <-ctx.Done():
			return nil, &api.Error{Code: api.Unavailable, Message: "the call ended while the replicas were asked for their feature levels", Err: context.Cause(ctx)}
		case <-late.C:
		}
		break
	}
	var list []api.MemberLevel
	for id, level := range members {
		list = append(list, api.MemberLevel{ID: id, MaxLevel: level})
	}
	slices.SortFunc(list, func(a, b api.MemberLevel) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

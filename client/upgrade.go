package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

// Upgrade is the state of a cell's upgrade.
type Upgrade struct {
	Level   int           // the feature level of the cell
	Newest  int           // the newest level that any replica knows
	Members []MemberLevel // every member of the cell, by id
}

// MemberLevel is the newest feature level that a member of a cell knows.
type MemberLevel struct {
	ID       string
	MaxLevel int // 0 without an answer
}

// FinishUpgrade raises the feature level of the cell to the newest that its replicas know, as an operator's
// act. The master asks all of them first. If one does not answer, or does not know that level, nothing
// changes, and the error is Unavailable and names each; the Upgrade is returned too. Nothing changes either
// if the cell already has that level. Afterwards no replica can go back to a binary without the level. The
// other errors are PermissionDenied and those of every change.
//
// A replica in without need not answer: it is permanently lost, and will be replaced (ChangeMembers). If it
// returns with a binary without the level, it cannot take part any more.
func (c *Client) FinishUpgrade(ctx context.Context, without ...string) (Upgrade, error) {
	const op = "finish the upgrade"
	var u Upgrade
	err := c.mutate(ctx, mutation{op: op, path: rootPath(c.cell.cfg),
		send: func(ctx context.Context, t *target, caller *chubbypb.Caller, m *chubbypb.Mutation) error {
			reply, err := t.data.chubby.FinishUpgrade(ctx, &chubbypb.FinishUpgradeRequest{Caller: caller, Mutation: m, Without: without})
			if err != nil {
				return err
			}
			u = Upgrade{Level: int(reply.GetLevel()), Newest: int(reply.GetNewest())}
			for _, one := range reply.GetMembers() {
				u.Members = append(u.Members, MemberLevel{ID: one.GetId(), MaxLevel: int(one.GetMaxLevel())})
			}
			return nil
		}})
	if missing := u.missing(without); err == nil && missing != "" {
		err = &api.Error{Code: api.Unavailable, Op: op, Path: rootPath(c.cell.cfg), Message: missing}
	}
	return u, err
}

// missing lists the members not known to know the newest level, or "". A silent one may know a newer one.
func (u Upgrade) missing(without []string) string {
	var which []string
	for _, m := range u.Members {
		switch {
		case m.MaxLevel == 0 && slices.Contains(without, m.ID):
		//mutant: case m.MaxLevel == 0 && u.Level < u.Newest: //by TestFinishNeedsEveryAnswer of ./cell
		case m.MaxLevel == 0:
			which = append(which, fmt.Sprintf("%s does not answer", m.ID))
		case m.MaxLevel < u.Newest:
			which = append(which, fmt.Sprintf("%s knows feature levels up to %d", m.ID, m.MaxLevel))
		}
	}
	if len(which) == 0 {
		return ""
	}
	return fmt.Sprintf("the cell stays at feature level %d, and not every replica is known to know level %d: %s; start every replica with the new version first; one that is lost for good can be left out (--without)", u.Level, u.Newest, strings.Join(which, ", "))
}

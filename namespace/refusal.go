package namespace

import (
	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

func tooLarge(contents []byte) error {
	return &refusal.Refusal{Cause: refusal.ContentsTooLarge, Used: int64(len(contents)), Allowed: api.MaxContents}
}

func aclNameTooLong() error {
	return &refusal.Refusal{Cause: refusal.ACLNameTooLong, Allowed: api.MaxACLName}
}

// lockHeld makes a refusal that names n's holders.
func (n *Node) lockHeld(cause refusal.Cause) error {
	r := &refusal.Refusal{Cause: cause, Mode: n.Mode, HolderCount: len(n.Holders)}
	for _, h := range n.Holders[:min(len(n.Holders), refusal.MaxHolders)] {
		r.Holders = append(r.Holders, h.Session)
	}
	return r
}

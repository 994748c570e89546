package namespace

import (
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// dying refuses what would need the node, or its name, that is being removed.
func dying(what string) error {
	return api.Errorf(api.Exists, "the ephemeral %s is being removed, for nobody has it open any more; try again in a moment", what)
}

func tooLarge(contents []byte) error {
	return api.Errorf(api.TooLarge, "the contents have %d bytes; at most %d are allowed", len(contents), api.MaxContents)
}

// lockHeld refuses what n's holders are in the way of, and names them. Their
// principal, host and process are for the caller to fill in.
func (n *Node) lockHeld(advice string) error {
	const named = 3 // in the message; all are in Holders
	var who []string
	holders := make([]api.Holder, len(n.Holders))
	for i, h := range n.Holders {
		holders[i] = api.Holder{Session: h.Session, Reason: h.Reason, SinceUnix: h.SinceUnix}
		if i < named {
			who = append(who, h.Session.String())
		}
	}
	if more := len(n.Holders) - named; more > 0 {
		who = append(who, fmt.Sprintf("%d more", more))
	}
	return &api.Error{
		Code: api.LockHeld, Holders: holders,
		Message: fmt.Sprintf("the lock is held in %v mode by %s: %s", n.Mode, strings.Join(who, ", "), advice),
	}
}

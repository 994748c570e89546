package refusal

import (
	"fmt"
	"strings"

	"github.com/chubbylock/chubby/api"
)

// fact returns a value for a sentence about a refusal.
type fact func(r *Refusal) any

func epoch(r *Refusal) any         { return r.Epoch }
func currentEpoch(r *Refusal) any  { return r.CurrentEpoch }
func request(r *Refusal) any       { return r.Request }
func listed(r *Refusal) any        { return r.Listed }
func previous(r *Refusal) any      { return r.Previous }
func highestIssued(r *Refusal) any { return r.HighestIssued }
func session(r *Refusal) any       { return r.Session }
func principal(r *Refusal) any     { return r.Principal }
func name(r *Refusal) any          { return r.Name }
func list(r *Refusal) any          { return r.List }
func path(r *Refusal) any          { return r.Path }
func kind(r *Refusal) any          { return r.Kind }
func generation(r *Refusal) any    { return r.Generation }
func current(r *Refusal) any       { return r.Current }
func mode(r *Refusal) any          { return r.Mode }
func wanted(r *Refusal) any        { return r.Wanted }
func length(r *Refusal) any        { return r.Length }
func used(r *Refusal) any          { return r.Used }
func allowed(r *Refusal) any       { return r.Allowed }
func more(r *Refusal) any          { return r.More }

func aclDir(*Refusal) any        { return api.ACLDir }
func minLease(*Refusal) any      { return api.MinLease }
func maxLease(*Refusal) any      { return api.MaxLease }
func maxLockDelay(*Refusal) any  { return api.MaxLockDelay }
func maxGeneration(*Refusal) any { return uint64(api.MaxGeneration) }
func exclusive(*Refusal) any     { return api.Exclusive }
func shared(*Refusal) any        { return api.Shared }

// node returns the kind of the node, in words.
func node(r *Refusal) any {
	switch {
	case r.Name == "":
		return "the root directory"
	case r.Kind == api.Directory:
		return "the directory"
	}
	return "the node"
}

// directory returns the name of a directory; the root's name is empty.
func directory(r *Refusal) any {
	if r.Name == "" {
		return "/"
	}
	return r.Name
}

// holders names the first holders, and says how many more there are.
func holders(r *Refusal) any {
	const named = 3 // for the sentence; Holders has up to MaxHolders
	var who []string
	for _, s := range r.Holders[:min(len(r.Holders), named)] {
		who = append(who, s.String())
	}
	if more := r.HolderCount - len(who); more > 0 {
		who = append(who, fmt.Sprintf("%d more", more))
	}
	return strings.Join(who, ", ")
}

// cycle says who waits for whom.
func cycle(r *Refusal) any {
	var steps []string
	for _, w := range r.Cycle {
		lock := w.Path
		if lock == "" {
			lock = "a lock that you may not read"
		}
		if w.Owner != "" {
			steps = append(steps, fmt.Sprintf("%v (for %q) waits for %s and %v", w.Session, w.Owner, lock, w.For))
		} else {
			steps = append(steps, fmt.Sprintf("%v waits for %s and %v", w.Session, lock, w.For))
		}
	}
	if more := r.Used - int64(len(steps)); more > 0 {
		steps = append(steps, fmt.Sprintf("so on in %d more steps", more))
	}
	return strings.Join(steps, ", ")
}

func quota(r *Refusal) any {
	if r.Quota == nil {
		return api.Quota{}
	}
	return *r.Quota
}

func quotaNodes(r *Refusal) any { return quota(r).(api.Quota).Nodes }
func quotaBytes(r *Refusal) any { return quota(r).(api.Quota).Bytes }

// by returns the operator's intervention, the zero value if it is unknown.
func by(r *Refusal) Intervention {
	if r.By == nil {
		return Intervention{}
	}
	return *r.By
}

func broken(r *Refusal) any      { return by(r).Break() }
func termination(r *Refusal) any { return by(r).Termination() }

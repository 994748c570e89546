package master

import (
	"context"
	"iter"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/master/tables"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
)

// Parts of a listing of quotas, the first byte of a page's mark.
const (
	ofPrincipals  byte = 1 // by name
	ofDirectories byte = 2 // by their marks
)

// QuotaBytes returns the max length of a quota on the wire.
func QuotaBytes(u api.QuotaUse) int { return 3*tables.MaxEncoded + len(u.Principal) + len(u.Path) }

// ListQuotas lists a page of the principals that use something or have a quota, then of the directories with
// one. most limits a page, as in newPage.
func (in *Inspector) ListQuotas(ctx context.Context, after []byte, most int) (p Page[api.QuotaUse], err error) {
	p = newPage[api.QuotaUse](most)
	done, err := in.beginPage(ctx)
	if err != nil {
		return p, err
	}
	defer done()
	state := in.epoch.state()
	if len(after) == 0 || after[0] == ofPrincipals {
		p.Next = in.listPrincipals(&p, state, string(after[min(len(after), 1):]))
		after = nil
	}
	if p.Next == nil {
		p.Next = in.listDirectories(&p, state, after[min(len(after), 1):])
	}
	return p, nil
}

// FindQuota returns a page with that principal, even if it uses nothing, or else that directory, if it has a
// quota. It omits what is invisible.
func (in *Inspector) FindQuota(ctx context.Context, principal string, directory api.Name) (p Page[api.QuotaUse], err error) {
	p = newPage[api.QuotaUse](1)
	if _, err := in.epoch.fence.Prove(ctx); err != nil {
		return p, err
	}
	state := in.epoch.state()
	sight := in.sightOf(state)
	if principal != "" {
		if sight.all || sight.principal == principal {
			in.addPrincipals(&p, state, []string{principal})
		}
		return p, nil
	}
	if node, ok := state.Tree.Get(directory); ok && node.Quota != nil && sight.reads(directory) {
		addDirectory(&p, in.epoch.path(node.Name), node)
	}
	return p, nil
}

// listPrincipals lists principals after a name, and returns the next page's mark.
func (in *Inspector) listPrincipals(p *Page[api.QuotaUse], state *raftfsm.State, after string) (next []byte) {
	sight := in.sightOf(state)
	if !sight.all { // there may be thousands of others before it
		if sight.principal > after {
			in.addPrincipals(p, state, []string{sight.principal})
		}
		return nil
	}
	var names []string
	for _, list := range []iter.Seq[string]{state.Tree.Creators(after), state.Sessions.Principals(after), quotaNames(state, after)} {
		some := len(names)
		for name := range list {
			if name > after { // "" owns the initial nodes of the cell
				names = append(names, name)
			}
			if len(names)-some > p.most {
				break
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if room := in.addPrincipals(p, state, names); room < len(names) {
		next = append([]byte{ofPrincipals}, names[max(room, 1)-1]...)
	}
	return next
}

// addPrincipals adds principals while there is room, and returns how many.
func (in *Inspector) addPrincipals(p *Page[api.QuotaUse], state *raftfsm.State, names []string) (added int) {
	for _, name := range names {
		if p.visit() || p.full() {
			break
		}
		added++
		used := state.Tree.Usage(name)
		info := api.QuotaUse{
			Principal: name, Allowed: state.Quota(name),
			Used: api.Quota{Nodes: used.Nodes, Bytes: used.Bytes, Sessions: state.Sessions.Of(name)},
		}
		p.add(info, QuotaBytes(info))
	}
	mu := in.epoch.mu.hold()
	defer mu.end()
	for i := range p.List {
		info := &p.List[i]
		info.Used.Handles, info.Used.Waiters = in.tables.Handles.Used.Of[info.Principal], in.tables.Queues.Used.Of[info.Principal]
		mu.pause(1)
	}
	return added
}

// quotaNames returns the principals with a quota of their own.
func quotaNames(state *raftfsm.State, first string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range state.QuotasFrom(first) {
			if !yield(name) {
				return
			}
		}
	}
}

// QuotaShares returns, by kind, the largest share of a quota that a principal uses: 1 is all, and more is
// possible after a quota was lowered. It visits every principal that uses something. It reads replicated data
// without the mutex, and takes it for maxSteps principals at a time.
func (m *Master) QuotaShares() map[string]float64 {
	state := m.epoch.state()
	var nodes, bytes, sessions, handles, waiters float64
	for name := range state.Tree.Creators("") {
		//mutant: used, allowed := state.Tree.Usage(name), api.DefaultQuota() //by TestQuotasAreMeasured of ./cell
		used, allowed := state.Tree.Usage(name), state.Quota(name)
		nodes = max(nodes, float64(used.Nodes)/float64(allowed.Nodes))
		bytes = max(bytes, float64(used.Bytes)/float64(allowed.Bytes))
	}
	for name := range state.Sessions.Principals("") {
		sessions = max(sessions, float64(state.Sessions.Of(name))/float64(state.Quota(name).Sessions))
	}
	mu := m.epoch.mu.holdPatiently()
	defer mu.end()
	for name, n := range m.tables.Handles.Used.Of {
		handles = max(handles, float64(n)/float64(state.Quota(name).Handles))
		mu.pause(1)
	}
	for name, n := range m.tables.Queues.Used.Of {
		waiters = max(waiters, float64(n)/float64(state.Quota(name).Waiters))
		mu.pause(1)
	}
	return map[string]float64{"nodes": nodes, "bytes": bytes, "sessions": sessions, "handles": handles, "waiters": waiters}
}

// listDirectories lists directories with a quota, and returns the next page's mark.
func (in *Inspector) listDirectories(p *Page[api.QuotaUse], state *raftfsm.State, behind namespace.Mark) (next []byte) {
	if state.Tree.Counts().Limited == 0 {
		return nil
	}
	sight := in.sightOf(state)
	for mark, node := range state.Tree.Below("", behind) {
		listed := node.Quota != nil && sight.reads(node.Name)
		if p.visit() || listed && p.full() {
			return append([]byte{ofDirectories}, behind...)
		}
		if behind = mark; listed {
			addDirectory(p, in.epoch.path(node.Name), node)
		}
	}
	return nil
}

func addDirectory(p *Page[api.QuotaUse], path string, node *namespace.Node) {
	info := api.QuotaUse{
		Path:    path,
		Used:    api.Quota{Nodes: node.Quota.Used.Nodes, Bytes: node.Quota.Used.Bytes},
		Allowed: api.Quota{Nodes: node.Quota.Limit.Nodes, Bytes: node.Quota.Limit.Bytes},
	}
	p.add(info, QuotaBytes(info))
}

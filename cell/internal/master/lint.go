package master

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// finding is a misuse.Finding, with what decides its place in the list.
type finding struct {
	misuse.Finding
	name  api.Name // last node; "" if it is about none
	worse float64  // multiple of the limit
}

// usualFindings is the usual max number of findings.
const usualFindings = 20

// judge returns the findings that follow from a usage's counts alone. epoch.mu is held.
func (u *usage) judge(now session.Instant) (found []*finding) {
	measured := u.all.measured(u, now)
	if measured < misuse.MinTime || u.actions == nil {
		return nil
	}
	u.turn()
	for _, kind := range misuse.Kinds() {
		if kind == misuse.HandleLeak || kind == misuse.ShortLease {
			continue // they are no counts
		}
		one := finding{Finding: misuse.Finding{Kind: kind, Count: u.sum(kind), Measured: measured}, name: u.at[kind]}
		if of := totalOf(kind); of != 0 && u.sum(of) > 0 {
			one.Share = min(float64(one.Count)/float64(u.sum(of)), 1)
		}
		if one.exceeds(kind.Limits()) {
			kept := one // most are not
			found = append(found, &kept)
		}
	}
	return found
}

// exceeds reports whether a finding reaches the limits, and sets worse.
func (f *finding) exceeds(l misuse.Limits) bool {
	rate := float64(f.Count) / f.Measured.Seconds()
	f.worse = float64(f.Count) / float64(l.Count)
	if l.PerSecond > 0 {
		f.worse = rate / l.PerSecond
	}
	return f.Count >= l.Count && rate >= l.PerSecond && f.Share >= l.Share
}

// Limits of a leak of handles, beside those in its row.
const (
	leakOpened = 64 // min Opens recently
	leakClosed = 10 // at most one Close in so many Opens
)

// findLeak returns a finding if a session opens handles without closing them, or nil.
func findLeak(mu hold, in *Inspector, id api.SessionID, u *usage, now session.Instant) *finding {
	own, limits := in.tables.Handles.Of[id], misuse.HandleLeak.Limits()
	measured := u.all.measured(u, now)
	if own == nil || len(own.ByID) < limits.Count || measured < misuse.MinTime || u.sum(countOpens) < leakOpened || u.sum(countCloses)*leakClosed > u.sum(countOpens) {
		return nil
	}
	one := &finding{
		Finding: misuse.Finding{Kind: misuse.HandleLeak, Count: len(own.ByID), Measured: measured},
		name:    u.at[countOpens], worse: float64(len(own.ByID)) / float64(limits.Count),
	}
	if one.Count > api.MaxHandles/2 {
		return one
	}
	nodes := map[namespace.Ref]struct{}{}
	for _, h := range own.ByID {
		nodes[h.Node] = struct{}{}
		mu.pause(1)
	}
	if len(nodes)*2 > one.Count {
		return nil
	}
	return one
}

// collectFindings judges all sessions, under the mutex; rights are checked later. It may miss a session that
// begins or ends in a pause. The error is ctx's.
func collectFindings(ctx context.Context, in *Inspector) (found []*finding, since time.Duration, err error) {
	mu := in.epoch.mu.holdPatiently()
	defer mu.end()
	now, state, usages := in.epoch.clock(), in.epoch.state(), in.epoch.reports.usages
	usages.advance(now)
	looked := 0
	for id, u := range usages.ofSession {
		if looked++; looked%256 == 0 && ctx.Err() != nil {
			return nil, 0, endedWhileLooking(ctx)
		}
		list := u.judge(now)
		if one := findLeak(mu, in, id, u, now); one != nil {
			list = append(list, one)
		}
		if s, ok := state.Sessions.Get(id); ok {
			measured, under := now.Sub(u.since), misuse.ShortLease.Limits().Under
			if s.Asked > 0 && s.Asked < under && measured >= misuse.MinTime {
				list = append(list, &finding{Finding: misuse.Finding{Kind: misuse.ShortLease, Measured: measured, Lease: s.Asked}, worse: under.Seconds() / s.Asked.Seconds()})
			}
		}
		for _, one := range list {
			one.Who.Session = id
		}
		found = append(found, list...)
		mu.pause(2 + len(list))
	}
	for _, principal := range usages.ofPrincipal.Keys() {
		u, ok := usages.ofPrincipal.Peek(principal)
		if !ok {
			continue
		}
		for _, one := range u.judge(now) {
			one.Who.Principal = principal
			found = append(found, one)
		}
		mu.pause(2)
	}
	return found, now.Sub(usages.began), nil
}

// Lint describes the worst misuse of the cell: to an operator all, to others that of their own principal; see
// Inspector.For. below limits findings to nodes in that subtree.
func (m *Master) Lint(ctx context.Context, viewer string, below api.Name, o misuse.Options) (r misuse.Report, err error) {
	in := m.Inspector.For(viewer)
	done, err := in.beginPage(ctx)
	if err != nil {
		return r, err
	}
	defer done()
	found, since, err := collectFindings(ctx, in)
	if err != nil {
		return r, err
	}
	state := in.epoch.state() // read after that: it has the owners of the sessions
	r.Epoch, r.Since = in.epoch.number, since
	sight := in.sightOf(state)
	var seen []*finding
	for i, one := range found {
		if i%256 == 0 && ctx.Err() != nil {
			return r, endedWhileLooking(ctx)
		}
		if below != "" && (one.name == "" || !within(one.name, below)) || o.Session != 0 && one.Who.Session != o.Session ||
			len(o.Kinds) > 0 && !slices.Contains(o.Kinds, one.Kind) {
			continue
		}
		if id := one.Who.Session; id != 0 {
			one.Who = in.epoch.holder(state, namespace.Holder{Owner: namespace.Owner{Session: id}})
		}
		if one.name != "" {
			one.Path = in.epoch.path(one.name)
		}
		if sight.sees(one.Who.Principal) && (o.Principal == "" || one.Who.Principal == o.Principal) {
			seen = append(seen, one)
		}
	}
	slices.SortFunc(seen, func(a, b *finding) int {
		return cmp.Or(-cmp.Compare(a.worse, b.worse), cmp.Compare(a.Who.Session, b.Who.Session), cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Who.Principal, b.Who.Principal))
	})
	most := o.Most
	if most <= 0 {
		most = usualFindings
	}
	listed := seen[:min(len(seen), most, api.MaxListed)]
	for _, one := range listed {
		r.Findings = append(r.Findings, one.Finding)
	}
	r.More = len(seen) - len(listed)
	return r, nil
}

func endedWhileLooking(ctx context.Context) error {
	return &api.Error{Code: api.ContextCode(context.Cause(ctx)), Message: "the call ended while it looked at what clients do", Err: context.Cause(ctx)}
}

package raftfsm_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
	"github.com/chubbylock/chubby/session"
)

// model specifies a State (Chubby §2.3 to §2.8, decisions 4 to 13), with plain maps and full scans: it keeps no index,
// no count and no sum. It takes the commands of a log and answers them with the results that the State must give,
// without causes.
type model struct {
	bootstrapped bool
	level        int
	wall         int64 // of the entry that is being applied
	epoch        api.Epoch
	counter      uint64
	nodes        map[api.Name]*modelNode
	delays       map[api.Name]namespace.Delay
	clients      map[api.SessionID]*modelSession
	quotas       map[string]api.Quota
	restored     string // as the last one is shown
	lineage      api.CellID
	origin       api.CellID // its own id, since a restore gave it that of another
	staged       *modelBackup
	replicas     []modelReplica
	changed      changed             // the replicas
	hands        map[string]api.Name // see giveUp
	again        bool                // begin has found that a request was answered before
}

type modelNode struct {
	kind                          api.Kind
	ephemeral                     bool
	instance, content, acls, lock api.Generation
	contents                      string
	acl                           api.ACL
	creator                       string
	modified                      int64
	limit                         namespace.Usage // of what is below it; zeros set no limit

	mode    api.LockMode
	holders []namespace.Holder
	openers map[namespace.Owner]bool
	revoked *refusal.Intervention
	past    []api.Holding
}

// modelSession knows of the requests up to highest: some the client has
// finished with, and some of the others are answered.
type modelSession struct {
	record  session.Session[raftfsm.Answer] // all but its requests
	highest api.RequestNumber
	givenUp map[api.RequestNumber]bool
	answers map[api.RequestNumber]modelAnswer
}

type modelAnswer struct {
	hash   uint64
	answer raftfsm.Answer
}

func newModel() *model {
	root := &modelNode{kind: api.Directory, instance: 1, content: 1, acls: 1, acl: api.ACL{Read: "everyone", Write: "everyone", Change: "everyone"}}
	return &model{
		counter: 1, lineage: "00112233445566778899aabbccddeeff", nodes: map[api.Name]*modelNode{"": root}, delays: map[api.Name]namespace.Delay{},
		clients: map[api.SessionID]*modelSession{}, quotas: map[string]api.Quota{}, hands: map[string]api.Name{},
	}
}

func (m *model) draw() uint64 { m.counter++; return m.counter }

// newNode gives a node its instance, which is also its first content and ACL generation.
func (m *model) newNode(n modelNode) *modelNode {
	n.instance = api.Generation(m.draw())
	n.content, n.acls, n.modified = n.instance, n.instance, m.modified()
	return &n
}

// refused returns an answer with some cause that has that code: the model does not say which.
func refused(code api.Code) raftfsm.Answer {
	if code == api.OK {
		return raftfsm.Answer{}
	}
	return raftfsm.Answer{Refusal: &refusal.Refusal{Cause: causeOf(code)}}
}

// causeOf returns the first cause that has a code.
func causeOf(code api.Code) refusal.Cause {
	for c := refusal.Cause(1); c.IsKnown(); c++ {
		if c.Code() == code {
			return c
		}
	}
	panic(code.String() + " has no cause")
}

// apply applies one command of an entry of that epoch, in a log entry of that term.
func (m *model) apply(term uint64, epoch api.Epoch, wall int64, c raftfsm.Command) raftfsm.Result {
	if uint64(epoch) != term || c.NewEpoch == nil && m.epoch != epoch {
		return raftfsm.Result{Answer: refused(api.StaleEpoch)}
	}
	m.wall = wall
	switch {
	case c.NewEpoch != nil:
		return raftfsm.Result{Answer: m.newEpoch(epoch, c.NewEpoch.Level)}
	case c.CreateSession != nil:
		return m.createSession(c.CreateSession, wall)
	case c.RaiseLease != nil:
		return raftfsm.Result{Answer: m.raiseLease(c.RaiseLease)}
	case c.EndSessions != nil:
		return m.endSessions(c.EndSessions, wall)
	case c.Cancel != nil:
		withdrawn := c.Cancel.Mutation
		if c.Cancel.Refusal == nil {
			withdrawn.Hash = 0
		}
		return m.once(withdrawn, nil, func() raftfsm.Result {
			if c.Cancel.Refusal != nil {
				return raftfsm.Result{Answer: raftfsm.Answer{Refusal: c.Cancel.Refusal}}
			}
			return raftfsm.Result{Answer: refused(api.Cancelled)}
		})
	case c.Terminate != nil:
		return m.once(c.Terminate.Mutation, nil, func() raftfsm.Result { return m.terminate(c.Terminate) })
	case c.SetQuota != nil:
		return m.once(c.SetQuota.Mutation, nil, func() raftfsm.Result { return raftfsm.Result{Answer: refused(m.setQuota(c.SetQuota))} })
	case c.RaiseLevel != nil:
		return m.once(c.RaiseLevel.Mutation, nil, func() raftfsm.Result { return raftfsm.Result{Answer: refused(m.raiseLevel(c.RaiseLevel))} })
	case c.Restore != nil && c.Restore.GiveUp && c.Restore.Mutation.Session == 0:
		return m.giveUpRestore(c.Restore.Of, c.Restore.Operator)
	case c.Restore != nil:
		return m.once(c.Restore.Mutation, nil, func() raftfsm.Result { return m.restore(c.Restore) })
	case c.ChangeMembers != nil:
		return m.once(c.ChangeMembers.Mutation, nil, func() raftfsm.Result {
			return raftfsm.Result{Answer: refused(m.changeMembers(c.ChangeMembers))}
		})
	case c.SettleMember != nil:
		m.settleMember(c.SettleMember)
		return raftfsm.Result{}
	case c.Open != nil:
		return m.once(c.Open.Mutation, c.Open.Preconditions, func() raftfsm.Result { return m.open(c.Open) })
	case c.SetContents != nil:
		return m.once(c.SetContents.Mutation, c.SetContents.Preconditions, func() raftfsm.Result { return m.setContents(c.SetContents) })
	case c.SetACL != nil:
		return m.once(c.SetACL.Mutation, c.SetACL.Preconditions, func() raftfsm.Result { return m.setACL(c.SetACL) })
	case c.Delete != nil:
		return m.once(c.Delete.Mutation, c.Delete.Preconditions, func() raftfsm.Result { return m.delete(c.Delete) })
	case c.Txn != nil:
		return m.once(c.Txn.Mutation, nil, func() raftfsm.Result { return m.txn(c.Txn) })
	case c.Remove != nil:
		return m.remove(c.Remove)
	}
	return m.applyToLocks(c, wall)
}

// newEpoch begins an epoch. The first one bootstraps the cell. No epoch begins twice, and none after a later one.
func (m *model) newEpoch(epoch api.Epoch, level int) raftfsm.Answer {
	if epoch <= m.epoch {
		return refused(api.StaleEpoch)
	}
	m.epoch = epoch
	if m.bootstrapped {
		return refused(api.OK)
	}
	m.bootstrapped, m.level = true, level
	top := m.nodes[""].acl
	m.nodes["/acl"] = m.newNode(modelNode{kind: api.Directory, acl: top})
	m.nodes["/acl/everyone"] = m.newNode(modelNode{kind: api.File, acl: top, contents: "*\n"})
	return refused(api.OK)
}

// modified returns the time to keep with contents written now: 0 below level 2.
func (m *model) modified() int64 {
	if m.level < 2 {
		return 0
	}
	return m.wall
}

func (m *model) createSession(c *raftfsm.CreateSession, wall int64) raftfsm.Result {
	same := 0
	for id, s := range m.clients {
		if len(c.Nonce) > 0 && string(s.record.Nonce) == string(c.Nonce) {
			return raftfsm.Result{Session: id}
		}
		if s.record.Principal == c.Principal {
			same++
		}
	}
	if c.Lease < api.MinLease || c.Lease > api.MaxLease {
		return raftfsm.Result{Answer: refused(api.InvalidArgument)}
	}
	if m.staged != nil && m.staged.sealed {
		return raftfsm.Result{Answer: refused(api.Unavailable)}
	}
	if same >= cmp.Or(m.quotas[c.Principal].Sessions, api.DefaultQuota().Sessions) {
		return raftfsm.Result{Answer: refused(api.QuotaExceeded)}
	}
	id := api.SessionID(m.draw())
	m.clients[id] = &modelSession{
		record: session.Session[raftfsm.Answer]{
			ID: id, Nonce: c.Nonce, Principal: c.Principal, Host: c.Host, PID: c.PID, Lease: c.Lease, MayCache: c.MayCache, SinceUnix: wall, Asked: c.Lease,
			CacheLease: c.CacheLease,
		},
		givenUp: map[api.RequestNumber]bool{}, answers: map[api.RequestNumber]modelAnswer{},
	}
	return raftfsm.Result{Session: id}
}

func (m *model) raiseLease(c *raftfsm.RaiseLease) raftfsm.Answer {
	s := m.clients[c.Session]
	switch {
	case c.Lease > api.MaxLease:
		return refused(api.InvalidArgument)
	case s == nil:
		return refused(api.SessionExpired)
	}
	s.record.Lease = max(s.record.Lease, c.Lease)
	return refused(api.OK)
}

// terminate is for sessions of the same principal, and for all with the right to change the ACL of the root.
func (m *model) terminate(c *raftfsm.Terminate) raftfsm.Result {
	by, target := m.principal(c.Mutation.Session), m.clients[c.Target]
	switch {
	case target == nil:
		return raftfsm.Result{Answer: refused(api.NotFound)}
	case by != target.record.Principal && !m.operates(by):
		return raftfsm.Result{Answer: refused(api.PermissionDenied)}
	case len(c.Why) > api.MaxReason:
		return raftfsm.Result{Answer: refused(api.InvalidArgument)}
	case target.record.Terminating == nil:
		target.record.Terminating = &refusal.Intervention{Principal: by, Why: c.Why}
	}
	return raftfsm.Result{Terminating: []api.SessionID{c.Target}}
}

// operates reports whether a principal is an operator.
func (m *model) operates(principal string) bool {
	if m.hasOperators() {
		return m.admits("operators", principal)
	}
	return m.admits(m.nodes[""].acl.Change, principal)
}

// closeLists has operators alone write and change the lists, and change the root's names, once a list of operators admits
// somebody and where everyone was named until then.
func (m *model) closeLists(r *raftfsm.Result, written api.Name) {
	dir := m.nodes["/acl"]
	if m.level < 3 || written != "/acl/operators" || dir.acl.Write != "everyone" && dir.acl.Change != "everyone" {
		return
	}
	entries := 0
	for line := range strings.SplitSeq(m.nodes[written].contents, "\n") {
		if line = strings.TrimSpace(line); line != "" && line != "@" && line[0] != '#' {
			entries++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		if entries == 0 || name != "" && name != "/acl" && above(name) != "/acl" {
			continue
		}
		before := n.acl
		if n.acl.Write == "everyone" && name != "" {
			n.acl.Write = "operators"
		}
		if n.acl.Change == "everyone" {
			n.acl.Change = "operators"
		}
		if n.acl != before {
			n.acls = api.Generation(m.draw())
			r.Changes = append(r.Changes, m.change(namespace.ACLChanged, namespace.Ref{Name: name, Instance: n.instance}, n.acls))
		}
	}
}

func (m *model) hasOperators() bool { return m.level >= 3 && m.nodes["/acl/operators"] != nil }

func (m *model) principal(id api.SessionID) string {
	if s := m.clients[id]; s != nil {
		return s.record.Principal
	}
	return ""
}

// begin notes what a request declares, unless it is refused. ok is true if the request is to be done.
func (m *model) begin(q session.Mutation) (answer raftfsm.Answer, ok bool) {
	var code api.Code
	m.again = false
	switch s := m.clients[q.Session]; {
	case len(q.Outstanding) > api.MaxOutstanding:
		code = api.QuotaExceeded
	case q.HighestIssued > api.MaxGeneration, !declared(q):
		code = api.InvalidArgument
	case s == nil, s.record.Terminating != nil:
		code = api.SessionExpired
	case s.givenUp[q.Number]:
		code = api.InvalidArgument
	default:
		kept, done := s.answers[q.Number]
		if done && kept.hash != 0 && q.Hash != 0 && kept.hash != q.Hash {
			return refused(api.InvalidArgument), false
		}
		s.hear(q)
		if done {
			m.again = true
			return m.replay(q.Session, kept.answer), false
		}
		return raftfsm.Answer{}, true
	}
	return refused(code), false
}

// declared reports whether a request's declaration is valid.
func declared(q session.Mutation) bool {
	among := false
	for i, n := range q.Outstanding {
		if n == 0 || n > q.HighestIssued || i > 0 && n <= q.Outstanding[i-1] {
			return false
		}
		among = among || n == q.Number
	}
	return among
}

func (s *modelSession) hear(q session.Mutation) {
	for n := api.RequestNumber(1); n <= q.HighestIssued; n++ {
		if !slices.Contains(q.Outstanding, n) {
			s.givenUp[n] = true
			delete(s.answers, n)
		}
	}
	s.highest = max(s.highest, q.HighestIssued)
}

// finish keeps the answer to a request that waits for one.
func (m *model) finish(q session.Mutation, a raftfsm.Answer) {
	s := m.clients[q.Session]
	if s == nil || s.givenUp[q.Number] {
		return
	}
	if _, done := s.answers[q.Number]; !done {
		s.answers[q.Number] = modelAnswer{hash: q.Hash, answer: a}
	}
}

func (m *model) once(q session.Mutation, preconditions []raftfsm.Precondition, do func() raftfsm.Result) raftfsm.Result {
	answer, ok := m.begin(q)
	if !ok {
		return raftfsm.Result{Answer: answer}
	}
	r := raftfsm.Result{Answer: refused(api.BadSequencer)}
	if m.checkPreconditions(preconditions) {
		r = do()
	}
	m.finish(q, r.Answer)
	return r
}

// replay repeats a grant only while it is valid.
func (m *model) replay(id api.SessionID, a raftfsm.Answer) raftfsm.Answer {
	if a.Refusal != nil || a.Generation == 0 {
		return a
	}
	n := m.resolve(a.Lock)
	if n == nil || n.lock != a.Generation || n.revoked != nil || !n.holds(namespace.Owner{Session: id, Handle: a.Handle}) {
		return refused(api.LockLost)
	}
	return a
}

// The rest shows the model in a form that can be compared and printed.

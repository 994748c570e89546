package peer

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/memnet"
	"github.com/chubbylock/chubby/cell/internal/testbed"
)

// traveller is a replica's port with an identity, and what others told it about
// itself.
type traveller struct {
	*Port
	me   identity.Replica
	held uint64 // its last index
	lost error
	log  *testbed.Lines
}

// newTraveller opens replica id of cell "foo" at a host of the same name.
func newTraveller(t *testing.T, wire *memnet.Network, me identity.Replica) *traveller {
	t.Helper()
	v := &traveller{me: me}
	v.Port, v.log = newTestPort(wire, "foo", me.ID, func(c *PortConfig) {
		c.Passport = NewPassport(func() identity.Replica { return v.me }, 0, func(err error) { v.lost = err }, testbed.Clock(), c.Logger)
		c.Passport.HoldsUpTo(func() uint64 { return v.held })
		c.Bootstrap = func() BootstrapReport { return BootstrapReport{ID: me.ID} }
	})
	t.Cleanup(v.close)
	return v
}

// memberOf returns a replica of a cell of three with its first directories.
func memberOf(cellID, id, incarnation string) identity.Replica {
	r := &identity.Roster{CellID: cellID}
	for _, m := range []string{"r1", "r2", "r3"} {
		r.Members = append(r.Members, identity.Member{ID: m, Incarnation: m + "-first"})
	}
	return identity.Replica{ID: id, Incarnation: incarnation, Roster: r, Begun: true}
}

// TestPassport: whichever of two replicas calls the other, they exchange
// nothing if they belong to different cells, if the cell does not know a
// directory, or if a replica has less data than others know that it had. The
// log says why, and a replica that lost its data learns it.
func TestPassport(t *testing.T) {
	for name, c := range map[string]struct {
		other     identity.Replica // calls r1, and r1 calls it
		held      uint64           // r1's last index; the other one remembers that r1 had 7
		remembers uint64           // what the other one remembers of r1
		holds     uint64           // the other's last index; r1 remembers that it had 5
		accepted  bool
		logged    string // by r1
		lost      string // what the other one learns about itself
		lostSelf  string // what r1 learns about itself
	}{
		"a peer":                    {other: memberOf("c1", "r2", "r2-first"), holds: 5, held: 7, remembers: 7, accepted: true},
		"another cell":              {other: memberOf("c2", "r2", "r2-first"), holds: 5, logged: "another cell of the same name"},
		"a new directory":           {other: identity.Replica{ID: "r2", Incarnation: "r2-new"}, holds: 0, logged: "replica r2 lost its data"},
		"a directory of this cell":  {other: memberOf("c1", "r2", "r2-new"), holds: 5, logged: "replica r2 lost its data", lost: "replica r2 lost its data"},
		"a bootstrapping directory": {other: identity.Replica{ID: "r2", Incarnation: "r2-first"}, holds: 0},
		"not a member":              {other: memberOf("c1", "r9", "r9-first"), holds: 5},
		"less than it held":         {other: memberOf("c1", "r2", "r2-first"), holds: 4, logged: "replica r2 lost entries", lost: "replica r2 lost entries"},
		"more than we hold":         {other: memberOf("c1", "r2", "r2-first"), holds: 5, held: 6, remembers: 7, lostSelf: "replica r1 lost entries"},
	} {
		for _, called := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wire := memnet.New()
					us, other := newTraveller(t, wire, memberOf("c1", "r1", "r1-first")), newTraveller(t, wire, c.other)
					us.held, other.held = c.held, c.holds
					us.Passport.NoteHeld("r2", 5)
					other.Passport.NoteHeld("r1", c.remembers)
					caller, callee := us, other
					if called {
						caller, callee = other, us
					}
					conn, err := caller.dial(probeStream, callee.ID, callee.ID, time.Second)
					if err == nil {
						defer conn.Close()
					}
					synctest.Wait()
					if (err == nil) != c.accepted {
						t.Errorf("called=%v: %v; want accepted %v", called, err, c.accepted)
					}
					if lines := strings.Join(us.log.Take(), ""); !strings.Contains(lines, c.logged) {
						t.Errorf("called=%v: r1 logged %q, want %q", called, lines, c.logged)
					}
					check := func(who string, got error, want string) {
						if (got != nil) != (want != "") || got != nil && (!strings.Contains(got.Error(), want) || !errors.Is(got, identity.ErrRefused)) {
							t.Errorf("called=%v: %s is told %v, want %q", called, who, got, want)
						}
					}
					if called || c.holds < 5 { // another directory of its own cell learns of it when it calls
						check("the other", other.lost, c.lost)
					}
					check("r1", us.lost, c.lostSelf)
				})
			})
		}
	}
}

// TestPassportOfAnother: a connection may reach another replica than the one that was called: its
// address was given to another host, or a name resolves to an old one. The hello says what the
// called replica has had, and must not condemn the one that it reached.
func TestPassportOfAnother(t *testing.T) {
	for caller, knows := range map[string]string{"r3": "r2", "r1": "r2"} { // r1 may reach itself
		synctest.Test(t, func(t *testing.T) {
			wire := memnet.New()
			us := newTraveller(t, wire, memberOf("c1", "r1", "r1-first"))
			us.held = 5 // it is behind
			calls := us
			if caller != us.ID {
				calls = newTraveller(t, wire, memberOf("c1", caller, caller+"-first"))
				calls.held = 9
			}
			calls.Passport.NoteHeld(knows, 9)
			if conn, err := calls.dial(raftStream, knows, us.ID, time.Second); err == nil {
				conn.Close()
				t.Errorf("%s reached %s at the address of another", caller, knows)
			}
			synctest.Wait()
			if us.lost != nil || calls.lost != nil {
				t.Errorf("%s called %s and reached r1, which is told %v; the caller is told %v", caller, knows, us.lost, calls.lost)
			}
		})
	}
}

// TestPassportForgivesOvertaking: a hello does not condemn its sender if the
// sender acknowledged more after it wrote the hello.
func TestPassportForgivesOvertaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		us := newTraveller(t, memnet.New(), memberOf("c1", "r1", "r1-first"))
		late := hello{kind: raftStream, cell: "foo", from: "r2", to: "r1", cellID: "c1", incarnation: "r2-first", last: 5}
		us.Passport.NoteHeld("r2", 9)
		if verdict, _ := us.Passport.checkCaller(late); verdict != helloBehind {
			t.Errorf("verdict %d", verdict)
		}
		// r2 has 9 entries by the time it reads the answer.
		r2 := newTraveller(t, memnet.New(), memberOf("c1", "r2", "r2-first"))
		r2.held = 9
		answer := us.Passport.complete(hello{kind: raftStream, verdict: helloBehind, cell: "foo", from: "r1", to: "r2"})
		if err := r2.Passport.checkAnswer(late, answer); err != nil || r2.lost != nil {
			t.Errorf("it condemned itself: %v, %v", err, r2.lost)
		}
	})
}

// TestRefusalsAreLoggedNowAndThen: for a peer that is refused again and again,
// the log has one line every ten seconds.
func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		us := newTraveller(t, wire, memberOf("c1", "r1", "r1-first"))
		newTraveller(t, wire, memberOf("c2", "r2", "r2-first"))
		for range 300 {
			if _, err := us.dial(raftStream, "r2", "r2", time.Second); api.CodeOf(err) != api.WrongCell {
				t.Fatalf("another cell: %v", err)
			}
			testbed.Pass(100 * time.Millisecond)
		}
		if lines := us.log.Take(); len(lines) != 3 || !strings.Contains(lines[0], "level=ERROR") {
			t.Errorf("30 s of refusals: %q", lines)
		}
	})
}

// A replica that may have been let in while this one was away is known by the cell's id. One that has left is told so, and
// ends.
func TestPassportKnowsNewcomers(t *testing.T) {
	var lost error
	me := identity.Replica{ID: "r1", Incarnation: "r1-first", Begun: true, Roster: &identity.Roster{CellID: "cell", Members: []identity.Member{
		{ID: "r1", Raft: "r1:1", Incarnation: "r1-first"}, {ID: "r2", Raft: "r2:1", Incarnation: "r2-first", Left: true},
	}}}
	p := NewPassport(func() identity.Replica { return me }, 10, func(err error) { lost = err }, testbed.Clock(), slog.New(slog.DiscardHandler))
	call := func(from, cellID string) helloVerdict {
		verdict, _ := p.checkCaller(hello{from: from, cellID: cellID, incarnation: from + "-first", last: 10})
		return verdict
	}
	if got := call("r3", "cell"); got != helloWrongReplica {
		t.Errorf("unknown: %d", got)
	}
	p.MayBeNewcomer(func(id string) bool { return id != "r4" })
	for _, one := range []struct {
		from, cellID string
		want         helloVerdict
	}{{"r3", "cell", helloAccepted}, {"r3", "", helloWrongReplica}, {"r3", "other", helloOtherCell}, {"r4", "cell", helloWrongReplica}, {"r2", "cell", helloLeft}} {
		if got := call(one.from, one.cellID); got != one.want {
			t.Errorf("%+v: %d", one, got)
		}
	}
	testbed.Report(t, p.checkAnswer(hello{}, hello{from: "r3", cellID: "cell", incarnation: "r3-first", last: 10}))
	if err := p.checkAnswer(hello{}, hello{from: "r2", cellID: "cell", incarnation: "r2-first", last: 10}); err == nil || lost != nil {
		t.Error("one that has left answers:", err, lost)
	}
	if err := p.checkAnswer(hello{}, hello{from: "r4", cellID: "other", incarnation: "x", verdict: helloLeft}); err == nil || lost != nil {
		t.Error("another cell says that this one has left:", err, lost)
	}
	if err := p.checkAnswer(hello{}, hello{from: "r3", incarnation: "x", verdict: helloLeft}); err == nil || lost != nil {
		t.Error("one without a cell says that this one has left:", err, lost)
	}
	if err := p.checkOwnLoss(hello{from: "r4", to: "r1", cellID: "cell", incarnation: "r4-first", held: 11}); err != nil || lost != nil {
		t.Error("one that is no newcomer says that this one has lost something:", err, lost)
	}
	if err := p.checkOwnLoss(hello{from: "r3", to: "r1", cellID: "cell", incarnation: "r3-first", held: 11}); err == nil || lost == nil {
		t.Error("a newcomer knows that this one has lost something:", err, lost)
	}
	lost = nil
	if err := p.checkAnswer(hello{}, hello{from: "r3", cellID: "cell", incarnation: "r3-first", verdict: helloLeft}); !errors.Is(err, identity.ErrRefused) || lost == nil {
		t.Error("this one has left:", err, lost)
	}
}

// A replica that leaves the cell while it is decided whether it may connect is cut off.
func TestWhoLeavesMeanwhileIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := memnet.New()
		us, r2 := newTraveller(t, wire, memberOf("c1", "r1", "r1-first")), newTraveller(t, wire, memberOf("c1", "r2", "r2-first"))
		asked := false
		us.Passport.me = func() identity.Replica {
			was := us.me
			if !asked {
				asked = true
				us.me = memberOf("c1", "r1", "r1-first")
				us.me.Roster.Members[1].Left = true
				us.Expel()
			}
			return was
		}
		conn, err := r2.dial(raftStream, "r1", "r1", time.Second)
		if err == nil {
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it stays connected: %v", err)
		}
		if !asked {
			t.Error("nobody has asked who it is")
		}
	})
}

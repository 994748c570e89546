package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func deployLock() client.LockInfo {
	return client.LockInfo{
		Path: "/ls/foo/deploy", Mode: api.Exclusive, Generation: 9,
		Holders: []api.Holder{{Session: 42, Principal: "ann", Host: "web3", PID: 7, Reason: "deploy"}},
	}
}

// Without --yes the holders are named, to people and to programs. The lock is found by both names of the cell, and locks
// below it are not taken for it.
func TestBreakRefusalNamesTheHolders(t *testing.T) {
	below := deployLock()
	below.Path = "/ls/foo/deploy/web"
	below.Holders = []api.Holder{{Session: 43, Principal: "bob"}}
	for _, c := range []struct {
		name    string
		now     bool
		locks   []client.LockInfo
		err     error
		want    string
		holders int
	}{
		{"held", false, []client.LockInfo{below, deployLock()}, nil, "held by ann on web3 (pid 7, s42)", 1},
		{"what it does", false, []client.LockInfo{deployLock()}, nil, "lease and lock-delay are over", 1},
		{"what --now does", true, []client.LockInfo{deployLock()}, nil, "may believe that they still hold it", 1},
		{"only below", false, []client.LockInfo{below}, nil, "nobody holds the lock, so", 0},
		{"delayed", false, []client.LockInfo{{Path: "/ls/foo/deploy", Delayed: 4 * time.Second}}, nil, "free in 4s", 0},
		{"no answer", false, nil, errors.New("no route"), "not known: no route", 0},
	} {
		o := &revocation{globals: &globals{output: "text"}, now: c.now}
		err := o.breakRefusal(api.MustParsePath("/ls/local/deploy"), c.locks, c.err)
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "bob") {
			t.Errorf("%s: %v (exit code %d), want %q", c.name, err, exitCode(err), c.want)
		}
		var refusal *api.Error
		if errors.As(err, &refusal); len(refusal.Holders) != c.holders {
			t.Errorf("%s: it names %d holders, want %d", c.name, len(refusal.Holders), c.holders)
		}
	}
}

func TestEndRefusalSaysWhose(t *testing.T) {
	s := shownSession{client.SessionInfo{Holder: api.Holder{Session: 42, Principal: "ann", Host: "web3", PID: 7}}, []string{"/ls/foo/a", "/ls/foo/b"}}
	for _, c := range []struct {
		s    shownSession
		err  error
		want string
	}{
		{s, nil, "session of ann on web3 (pid 7, s42), which holds /ls/foo/a, /ls/foo/b"},
		{shownSession{info: s.info}, nil, "holds no lock"},
		{shownSession{}, api.Errorf(api.NotFound, "gone"), "nothing to end"},
		{shownSession{}, api.Errorf(api.Unavailable, "no master"), "not known: no master"},
	} {
		if err := endRefusal(42, c.s, c.err); exitCode(err) != exitUsage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v (exit code %d), want %q", err, exitCode(err), c.want)
		}
	}
}

func TestShowSession(t *testing.T) {
	s := shownSession{client.SessionInfo{
		Holder: api.Holder{Session: 42, Principal: "ann", Host: "web3", PID: 7},
		Lease:  12 * time.Second, LeftLeast: 3 * time.Second, LeftMost: 13 * time.Second, Handles: 2, Locks: 1,
	}, []string{"/ls/foo/deploy"}}
	var b bytes.Buffer
	if err := printSession("text", &b, s); err != nil {
		t.Fatal(err)
	}
	want := `session    s42
principal  ann
host       web3
pid        7
lease      12s
left       3s at least, 13s at most
handles    2
locks      1
holds      /ls/foo/deploy
`
	if b.String() != want {
		t.Errorf("printed\n%s", b.String())
	}
}

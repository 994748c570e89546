package refusal_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

var update = flag.Bool("update", false, "write testdata/causes.txt anew")

// sample returns a refusal that has every fact.
func sample(c refusal.Cause) *refusal.Refusal {
	return &refusal.Refusal{
		Cause:         c,
		Name:          "/dir/node",
		List:          "/acl/ops",
		Path:          "/ls/local/dir",
		Kind:          api.File,
		Principal:     "alice",
		Session:       4,
		By:            &refusal.Intervention{Principal: "bob", Why: "stuck"},
		Request:       11,
		Listed:        12,
		Previous:      13,
		HighestIssued: 14,
		Epoch:         21,
		CurrentEpoch:  22,
		Generation:    31,
		Current:       32,
		Mode:          api.Exclusive,
		Wanted:        api.Shared,
		Holders:       []api.SessionID{5, 6, 7, 8},
		HolderCount:   9,
		Length:        time.Minute,
		Used:          41,
		Allowed:       42,
		More:          43,
		Quota:         &api.Quota{Nodes: -1},
		Cycle:         []refusal.Wait{{Session: 4, Path: "/ls/local/a", For: 5}, {Session: 5, Owner: "tx", For: 4}},
	}
}

// every calls do with each cause. Their numbers have no gap.
func every(do func(c refusal.Cause)) (last refusal.Cause) {
	for c := refusal.Cause(1); c.IsKnown(); c++ {
		do(c)
		last = c
	}
	return last
}

// The numbers and codes of causes are in logs and snapshots, so they must not change. The sentences
// may change; the file shows the difference. -update writes the file.
func TestCauses(t *testing.T) {
	var b strings.Builder
	last := every(func(c refusal.Cause) {
		fmt.Fprintf(&b, "%d %v: %s\n", c, c.Code(), sample(c).Message())
		for _, r := range []*refusal.Refusal{sample(c), {Cause: c}} {
			if m := r.Message(); m == "" || strings.Contains(m, "%!") {
				t.Errorf("%v says %q", c, m)
			}
		}
		if c.Code() == api.OK || c.Code() == api.Uncertain {
			t.Errorf("%v has the code %v", c, c.Code())
		}
	})
	for c := last + 1; c != 0; c++ {
		if c.IsKnown() {
			t.Fatalf("%v follows %v: the numbers have a gap", c, last)
		}
	}
	const golden = "testdata/causes.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the causes are\n%s\nand %s has others: no number and no code may change; for a new cause, or other words, run the test with -update", b.String(), golden)
	}
}

// A refusal is an error with its code, and no other, and errors.As gets an *api.Error from it, with all that it names.
func TestRefusalIsAnError(t *testing.T) {
	every(func(c refusal.Cause) {
		err := fmt.Errorf("wrapped: %w", sample(c))
		var e *api.Error
		var other *fs.PathError
		switch {
		case !errors.Is(err, c.Code()) || errors.Is(err, api.OK) || errors.Is(err, api.NotHeld) != (c.Code() == api.NotHeld) || api.CodeOf(err) != c.Code():
			t.Errorf("%v is %v, want %v", c, api.CodeOf(err), c.Code())
		case errors.As(err, &other) || errors.Is(err, fs.ErrExist):
			t.Errorf("%v is taken for another error", c)
		case !errors.As(err, &e) || e.Code != c.Code() || e.Message != sample(c).Message() || len(e.Holders) != 4 || e.Holders[3].Session != 8 || len(e.Cycle) != 2 || e.Cycle[1].Owner != "tx":
			t.Errorf("%v is %+v", c, e)
		case (e.Current == 32) != (c.Code() == api.GenerationMismatch):
			t.Errorf("%v has the current generation %d", c, e.Current)
		case sample(c).Error() != e.Error():
			t.Errorf("%v says %q, and its api.Error %q", c, sample(c).Error(), e.Error())
		}
	})
	var none *refusal.Refusal
	if none.Code() != api.OK {
		t.Errorf("no refusal has the code %v", none.Code())
	}
}

// An older version must not draw conclusions from a cause that a newer one has stored.
func TestUnknownCause(t *testing.T) {
	r := &refusal.Refusal{Cause: 60_000}
	if r.Cause.IsKnown() || r.Code() != api.Uncertain || refusal.IsFinal(r.Code()) || r.Message() != "cause 60000" {
		t.Errorf("%v, %q", r.Code(), r.Message())
	}
}

// The sentence of a refusal names what is there, and counts what it leaves out only if there is something.
func TestWordsOfRefusals(t *testing.T) {
	wait := refusal.Wait{Session: 7, Path: "/ls/local/a", For: 9}
	for what, test := range map[string]struct {
		r     refusal.Refusal
		says  []string
		never string
	}{
		"three holders":    {refusal.Refusal{Cause: refusal.HeldInConflict, Holders: []api.SessionID{1, 2, 3}, HolderCount: 3}, nil, "more"},
		"four holders":     {refusal.Refusal{Cause: refusal.HeldInConflict, Holders: []api.SessionID{1, 2, 3, 4}, HolderCount: 4}, []string{"1 more"}, "0000000000000004"},
		"a whole cycle":    {refusal.Refusal{Cause: refusal.WaitsForItself, Cycle: []refusal.Wait{wait}, Used: 1}, []string{"/ls/local/a"}, "more steps"},
		"a part of a ring": {refusal.Refusal{Cause: refusal.WaitsForItself, Cycle: []refusal.Wait{wait}, Used: 3}, []string{"2 more steps"}, "3 more"},
		"the root":         {refusal.Refusal{Cause: refusal.NotAdmittedToRead}, []string{"the root directory"}, "the node"},
		"a directory":      {refusal.Refusal{Cause: refusal.NotAdmittedToRead, Name: "/d", Kind: api.Directory}, []string{"read the directory"}, "the root"},
		"a file":           {refusal.Refusal{Cause: refusal.NotAdmittedToRead, Name: "/f", Kind: api.File}, []string{"read the node"}, "directory"},
		"the root's quota": {refusal.Refusal{Cause: refusal.NodeQuotaBelow}, []string{"directory /:"}, "  "},
	} {
		text := test.r.Message()
		for _, part := range test.says {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q does not say %q", what, text, part)
			}
		}
		if strings.Contains(text, test.never) {
			t.Errorf("%s: %q says %q", what, text, test.never)
		}
	}
}

// Replicas of an older level must not refuse for causes that they do not know.
func TestLevelsOfCauses(t *testing.T) {
	for cause, want := range map[refusal.Cause]int{1: 1, refusal.LevelReached: 1, refusal.LevelReached + 1: 3} {
		if got := cause.Level(); got != want {
			t.Errorf("cause %d has level %d, want %d", cause, got, want)
		}
	}
	for code, want := range map[api.Code]bool{api.LockHeld: true, api.Unavailable: false, api.SessionExpired: false} {
		if got := refusal.IsFinal(code); got != want {
			t.Errorf("%v is final: %v, want %v", code, got, want)
		}
	}
}

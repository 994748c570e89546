package refusal_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/refusal"
)

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

// A refusal is the error of the API, with all that it names, and no other.
func TestRefusalIsNoOtherError(t *testing.T) {
	r := &refusal.Refusal{Cause: refusal.HeldInConflict, Holders: []api.SessionID{1}, Cycle: []refusal.Wait{{Session: 7, For: 9}}}
	var other *fs.PathError
	if errors.As(r, &other) || errors.Is(r, fs.ErrExist) || errors.Is(r, api.NotHeld) || !errors.Is(r, r.Code()) {
		t.Error("a refusal is taken for another error")
	}
	if e := r.Err(); len(e.Holders) != 1 || len(e.Cycle) != 1 || e.Cycle[0].Session != 7 {
		t.Errorf("the error names holders %v and the cycle %v", e.Holders, e.Cycle)
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

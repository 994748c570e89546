package raftfsm_test

import (
	"errors"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/refusal"
)

// Retries are answered with the refusal of a cancelled request. A replica that does not know its cause would answer otherwise than
// the others, so it takes no such entry.
func TestCancelsOfUnknownCauses(t *testing.T) {
	unknown := refusal.Cause(1)
	for unknown.IsKnown() {
		unknown++
	}
	for name, test := range map[string]struct {
		because *refusal.Refusal
		newer   bool
		ok      bool
	}{
		"a known cause":           {because: &refusal.Refusal{Cause: refusal.WaitersComeFirst}, ok: true},
		"no refusal":              {ok: true},
		"a cause of a newer cell": {because: &refusal.Refusal{Cause: unknown}, newer: true},
		"no cause":                {because: &refusal.Refusal{}},
	} {
		cancel := raftfsm.Command{Cancel: &raftfsm.Cancel{Refusal: test.because}}
		entry, err := raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{cancel, cancel}}.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = raftfsm.DecodeEntry(entry)
		if (err == nil) != test.ok || !test.ok && !errors.Is(err, api.Corrupt) || errors.Is(err, raftfsm.ErrNewer) != test.newer {
			t.Errorf("%s: DecodeEntry returns %v; may be read: %v, newer: %v", name, err, test.ok, test.newer)
		}
	}
}

package disk

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/raft"
)

// TestCommittedEntriesStay: entries that a replica knows to be committed leave
// its log only when they are in a snapshot, also after a restart.
func TestCommittedEntriesStay(t *testing.T) {
	for name, c := range map[string]struct {
		snapshot    uint64 // 0: none
		begin       uint64 // of the log, if it is not 1
		commit      uint64 // as Raft knows it when the entries are written, or later
		first, last uint64
		refused     string // in the error; empty: deleted
		again       bool   // the replica must be restarted
	}{
		"a suffix that is not committed":       {commit: 5, first: 6, last: 9},
		"a suffix that is, partly":             {commit: 5, first: 5, last: 9, refused: "those up to 5 were committed"},
		"a suffix that is, wholly":             {commit: 9, first: 7, last: 9, refused: "those up to 9 were committed"},
		"a suffix below the snapshot":          {snapshot: 6, commit: 3, first: 6, last: 9, refused: "those up to 6 were committed"},
		"a prefix in the snapshot":             {snapshot: 6, commit: 9, first: 1, last: 4},
		"a prefix beyond the snapshot":         {snapshot: 3, commit: 9, first: 1, last: 4, refused: "are in no snapshot", again: true},
		"everything, after a newer snapshot":   {snapshot: 20, commit: 9, first: 1, last: 9},
		"everything, after an older snapshot":  {snapshot: 6, commit: 9, first: 1, last: 9, refused: "are in no snapshot", again: true},
		"everything behind the snapshot":       {snapshot: 6, begin: 7, commit: 9, first: 7, last: 9, refused: "those up to 9 were committed"},
		"everything, of which part was no use": {snapshot: 6, commit: 6, first: 1, last: 9, again: true},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", name, restart), func(t *testing.T) {
				dir := t.TempDir()
				var told error
				open := func() *Stores {
					opts := testStoreOptions()
					opts.Fatal = func(err error) { told = err }
					s, err := Open(dir, BoltStore, opts)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { mustClose(t, s) })
					return s
				}
				s := open()
				if err := s.who.Store(rosterAlone(s.who.Get()), true); err != nil {
					t.Fatal(err)
				}
				if err := s.stable.SetUint64([]byte(currentTermKey), 1); err != nil {
					t.Fatal(err)
				}
				if err := s.logs.StoreLogs(crashBatch(1, 8, 1)); err != nil {
					t.Fatal(err)
				}
				s.mark.followRaft(func() uint64 { return c.commit }) // the last entry is stored with it
				if err := s.logs.StoreLogs(crashBatch(9, 9, 1)); err != nil {
					t.Fatal(err)
				}
				if c.snapshot != 0 {
					takeSnapshot(t, s, c.snapshot)
				}
				if c.begin > 1 {
					if err := s.rawLogs.DeleteRange(1, c.begin-1); err != nil {
						t.Fatal(err)
					}
				}
				if restart && c.snapshot < 9 { // otherwise it would not read its log
					mustClose(t, s)
					s = open()
				}
				err := s.failStop.callOnGoroutine(func() error { return s.logs.DeleteRange(c.first, c.last) })
				if c.refused == "" {
					if left, err := s.rawLogs.LastIndex(); left >= c.last && c.first > 1 || err != nil {
						t.Errorf("the log ends at %d: %v", left, err)
					}
					if !errors.Is(err, told) || c.again != errors.Is(told, errRestart) || !c.again && told != nil {
						t.Fatalf("refused: %v, %v", err, told)
					}
					return
				}
				if errors.Is(told, identity.ErrRefused) == c.again || errors.Is(told, errRestart) != c.again || !strings.Contains(told.Error(), c.refused) {
					t.Errorf("the replica was ended with %v; want %q", told, c.refused)
				}
				var left raft.Log
				if err := readLog(s.rawLogs, c.first, &left); err != nil {
					t.Errorf("entry %d: %v", c.first, err)
				}
			})
		}
	}
}

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"go.etcd.io/bbolt"
)

// TestOldVotesAreRefused: only the votes are put back from an older copy, as
// the message about missing ones may suggest. The replica could vote twice in
// one term.
func TestOldVotesAreRefused(t *testing.T) {
	for name, snapshot := range map[string]uint64{"log": 0, "snapshot": 10, "snapshot beyond the log": 20} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir, BoltStore, 9, 0)
			old, err := os.ReadFile(filepath.Join(dir, votesName))
			testbed.NoErr(t, err)
			s := mustOpen(t, dir, BoltStore)
			testbed.NoErr(t, s.stable.SetUint64([]byte(currentTermKey), 2))
			testbed.NoErr(t, s.logs.StoreLogs(crashBatch(10, 10, 2)))
			if snapshot > 0 {
				takeSnapshotOf(t, s, snapshot, 2)
			}
			mustClose(t, s)
			s, err = testStores(dir, BoltStore)
			testbed.NoErr(t, err)
			mustClose(t, s)
			overwrite(votesName, string(old))(t, dir)
			if _, err := testStores(dir, BoltStore); api.CodeOf(err) != api.Corrupt || !strings.Contains(err.Error(), "the votes end in term 1") {
				t.Errorf("%v, want a refusal", err)
			}
		})
	}
}

// TestVotesOfAnotherAreRefused: with the files of another replica of the cell
// in its directory, beside its own marker, a replica does not vote as that one.
func TestVotesOfAnotherAreRefused(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	filled(t, dir, BoltStore, 9, 0)
	filled(t, other, BoltStore, 9, 0)
	for _, name := range []string{votesName, boltLogName} {
		text := testbed.Must(os.ReadFile(filepath.Join(other, name)))(t)
		overwrite(name, string(text))(t, dir)
	}
	if _, err := testStores(dir, BoltStore); !errors.Is(err, identity.ErrRefused) || !strings.Contains(err.Error(), "not of one replica") {
		t.Errorf("%v, want a refusal", err)
	}
	// Votes of a version that did not record the voter belong to this replica from now on.
	db, err := bbolt.Open(filepath.Join(dir, votesName), 0o600, boltOptions())
	testbed.NoErr(t, err)
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(votesBucket)).Delete([]byte(voterKey)) })
	testbed.NoErr(t, errors.Join(err, db.Close()))
	s := mustOpen(t, dir, BoltStore)
	if voter, err := s.rawVotes.Get([]byte(voterKey)); err != nil || string(voter) != s.who.Get().Incarnation {
		t.Errorf("the votes are of %q: %v", voter, err)
	}
}

// TestVoteIsOneWrite: a crash between the two halves of a vote leaves the old
// vote. (With the new term and the old candidate, Raft would give that
// candidate a second vote.)
func TestVoteIsOneWrite(t *testing.T) {
	dir := t.TempDir()
	term, candidate := []byte(voteTermKey), []byte(voteCandidateKey)
	s := mustOpen(t, dir, BoltStore)
	testbed.NoErr(t, s.who.Store(rosterAlone(s.who.Get()), true))
	testbed.NoErr(t, s.logs.StoreLog(crashEntry(1, 1)))
	vote := func(n uint64, who string) {
		testbed.NoErr(t, errors.Join(s.stable.SetUint64(term, n), s.stable.Set(candidate, []byte(who))))
	}
	check := func(when string, wantTerm uint64, want string) {
		t.Helper()
		n, err := s.stable.GetUint64(term)
		who, err2 := s.stable.Get(candidate)
		if err := errors.Join(err, err2); err != nil || n != wantTerm || string(who) != want {
			t.Errorf("%s: vote of term %d for %q, %v; want %d for %q", when, n, who, err, wantTerm, want)
		}
	}
	check("never voted", 0, "")
	vote(3, "b")
	check("voted", 3, "b")
	testbed.NoErr(t, s.stable.SetUint64([]byte("CurrentTerm"), 4))
	testbed.NoErr(t, s.stable.SetUint64(term, 4))
	check("half way", 3, "b")
	mustClose(t, s) // the process dies here
	s = mustOpen(t, dir, BoltStore)
	check("after the crash", 3, "b")
	vote(5, "c")
	check("voted again", 5, "c")
	mustClose(t, s)
	s = mustOpen(t, dir, BoltStore)
	check("and restarted", 5, "c")
	if n, err := s.stable.GetUint64([]byte("CurrentTerm")); n != 4 || err != nil {
		t.Errorf("CurrentTerm is %d, %v; want 4", n, err)
	}
}

// TestVoteChecksum: a damaged vote is noticed and not used.
func TestVoteChecksum(t *testing.T) {
	s := mustOpen(t, t.TempDir(), BoltStore)
	key := []byte("CurrentTerm")
	testbed.NoErr(t, s.stable.SetUint64(key, 7))
	votes := s.rawVotes.(*voteStore)
	for i := range 12 {
		testbed.NoErr(t, votes.SetUint64(key, 7))
		err := votes.db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(votesBucket))
			value := append([]byte{}, b.Get(key)...)
			value[i] ^= 1
			return b.Put(key, value)
		})
		testbed.NoErr(t, err)
		if n, err := votes.GetUint64(key); api.CodeOf(err) != api.Corrupt {
			t.Errorf("byte %d changed: %d, %v; want Corrupt", i, n, err)
		}
	}
}

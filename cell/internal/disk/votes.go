package disk

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"path/filepath"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// voterKey is the key of the voting replica's incarnation.
const voterKey = "Incarnation"

// Raft's keys, and the bucket. Raft.persistVote writes the two of the last vote one after the other.
const (
	currentTermKey   = "CurrentTerm"
	voteTermKey      = "LastVoteTerm"
	voteCandidateKey = "LastVoteCand"
	votesBucket      = "votes"
)

// voteStore is Raft's stable store: the current term and the last vote, in a bbolt file of their own, each
// value with a checksum.
//
// Raft writes the term and the candidate of a vote separately. A crash between would leave the new term with
// the old candidate. Raft.requestVote would then grant that candidate a vote of this term, as a repetition,
// without comparing logs (hashicorp/raft issue 661). So the store holds the term back until the candidate
// arrives, and writes both in one transaction, which raft-boltdb lacks; until then the old vote holds.
type voteStore struct {
	db *bbolt.DB

	mu       sync.Mutex // guards voteTerm
	voteTerm []byte     // held back, or nil
}

var _ raft.StableStore = (*voteStore)(nil)

func initVotes(db *bbolt.DB) error {
	return db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte(votesBucket))
		return err
	})
}

// verify reads everything, and reports impossible contents. With a damaged key, a vote would be missed, and the
// replica would vote again, for another candidate.
func (s *voteStore) verify() error {
	found := map[string]bool{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(votesBucket))
		if b == nil {
			return api.Errorf(api.Corrupt, "the bucket %s is missing", votesBucket)
		}
		return b.ForEach(func(key, stored []byte) error {
			switch name := string(key); name {
			case currentTermKey, voteTermKey, voteCandidateKey, voterKey:
				found[name] = true
			default:
				return api.Errorf(api.Corrupt, "it has a value %.40q, which nobody writes", name)
			}
			if !isSealedVote(key, stored) {
				return api.Errorf(api.Corrupt, "%s fails its checksum", key)
			}
			return nil
		})
	})
	if err == nil && found[voteTermKey] != found[voteCandidateKey] {
		err = api.Errorf(api.Corrupt, "of the last vote only one half is there, and both are written together")
	}
	return err
}

func (s *voteStore) Set(key, value []byte) error {
	s.mu.Lock()
	voteTerm := s.voteTerm
	if string(key) == voteTermKey {
		s.voteTerm = bytes.Clone(value)
	}
	s.mu.Unlock()
	if string(key) == voteTermKey {
		return nil
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(votesBucket))
		if string(key) == voteCandidateKey && voteTerm != nil {
			if err := b.Put([]byte(voteTermKey), sealVote([]byte(voteTermKey), voteTerm)); err != nil {
				return err
			}
		}
		return b.Put(key, sealVote(key, value))
	})
	if err != nil {
		return err
	}
	if string(key) == voteCandidateKey {
		s.mu.Lock()
		s.voteTerm = nil
		s.mu.Unlock()
	}
	return nil
}

// Get implements raft.StableStore: nil for a missing value.
func (s *voteStore) Get(key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		stored := tx.Bucket([]byte(votesBucket)).Get(key)
		if stored == nil {
			return nil
		}
		if !isSealedVote(key, stored) {
			return api.Errorf(api.Corrupt, "%s fails its checksum", key)
		}
		value = append([]byte{}, stored[:len(stored)-crc32.Size]...) // the page may change after the transaction
		return nil
	})
	return value, err
}

func (s *voteStore) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore: 0 for a missing value.
func (s *voteStore) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, api.Errorf(api.Corrupt, "%s is %d bytes, not a number", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

func sealVote(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(value), voteSum(key, value))
}

func isSealedVote(key, stored []byte) bool {
	own := len(stored) - crc32.Size
	return own >= 0 && binary.BigEndian.Uint32(stored[own:]) == voteSum(key, stored[:own])
}

func voteSum(key, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, value)
}

func (s *Stores) openVotes() error {
	path := filepath.Join(s.dir, votesName)
	if err := makeFile(path, func(path string) (io.Closer, error) {
		db, err := bbolt.Open(path, 0o600, boltOptions())
		if err != nil {
			return nil, err
		}
		return db, initVotes(db)
	}); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, boltOptions())
	if err != nil {
		return dataError(path, err, "the votes cannot be opened")
	}
	s.closers = append(s.closers, db)
	votes := &voteStore{db: db}
	s.rawVotes = votes
	if err := catchPanic(votes.verify); err != nil {
		return damaged(path, err, "the votes are damaged")
	}
	return nil
}

// failStopVotes is Raft's stable store, with a fail-stop. A missing value is no error. drain waits until no entry of
// the log is pending: all entries of a term are stored before another term is; see pendingLogs.
type failStopVotes struct {
	inner    raft.StableStore
	failStop *failStop
	path     string
	drain    func()
}

var _ raft.StableStore = (*failStopVotes)(nil)

func (v *failStopVotes) Set(key, value []byte) error {
	//mutant: _ = v.drain
	v.drain()
	return v.failStop.attemptOrExit(v.op("write", key), nil, func() error { return v.inner.Set(key, value) })
}

func (v *failStopVotes) Get(key []byte) (value []byte, err error) {
	err = v.failStop.attemptOrExit(v.op("read", key), nil, func() error {
		value, err = v.inner.Get(key)
		return err
	})
	return value, err
}

func (v *failStopVotes) SetUint64(key []byte, value uint64) error {
	//mutant: _ = v.drain
	v.drain()
	return v.failStop.attemptOrExit(v.op("write", key), nil, func() error { return v.inner.SetUint64(key, value) })
}

func (v *failStopVotes) GetUint64(key []byte) (value uint64, err error) {
	err = v.failStop.attemptOrExit(v.op("read", key), nil, func() error {
		value, err = v.inner.GetUint64(key)
		return err
	})
	return value, err
}

func (v *failStopVotes) op(verb string, key []byte) storeOp {
	return storeOp{verb: verb + " " + string(key), path: v.path}
}

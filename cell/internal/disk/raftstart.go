package disk

import (
	"errors"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// Bootstrap writes the first entry of the log, the configuration, the same on every member; then it records
// that the cell has begun here.
func (s *Stores) Bootstrap(conf *raft.Config, trans raft.Transport) error {
	used, err := s.holdsCell()
	if err != nil {
		return err
	}
	if used {
		return dataError(s.dir, raft.ErrCantBootstrap, "it holds a cell already")
	}
	r := s.who.Get().Roster
	for _, m := range r.Members {
		s.configuration.Servers = append(s.configuration.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Raft)})
	}
	err = s.failStop.callOnGoroutine(func() error {
		// Raft bootstraps again after an interruption only if the term is 0.
		if err := s.stable.SetUint64([]byte(currentTermKey), 0); err != nil {
			return err
		}
		return raft.BootstrapCluster(conf, s.logs, s.stable, s.snapshots, trans, s.configuration)
	})
	if err != nil {
		return err
	}
	return s.who.Store(r, true)
}

// StartRaft starts Raft on the stores. No message from trans may reach Raft before it returns.
func (s *Stores) StartRaft(conf *raft.Config, fsm raft.FSM, trans raft.Transport) (r *raft.Raft, err error) {
	err = s.failStop.callOnGoroutine(func() error {
		return catchPanic(func() (err error) { // Raft panics if it cannot restore something
			r, err = raft.NewRaft(conf, fsm, s.logs, s.stable, s.snapshots, trans)
			return err
		})
	})
	switch {
	case err == nil:
	case s.failStop.failure() != nil:
		return nil, err
	default: // no store failed
		return nil, damaged(s.dir, err, "Raft cannot go on from the snapshots and the log in it")
	}
	//mutant: if has := r.LastIndex(); has < s.last && false {
	if has := r.LastIndex(); has < s.last { // Raft has not talked to other replicas yet
		return nil, errors.Join(damaged(filepath.Join(s.dir, snapshotsName), nil, "the snapshot of entry %d cannot be restored, and without it the data ends at entry %d", s.last, has), r.Shutdown().Error())
	}
	s.mark.followRaft(r.CommitIndex)
	return r, nil
}

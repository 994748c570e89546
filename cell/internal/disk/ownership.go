package disk

import (
	"path/filepath"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/raft"
)

func noData(dir string, opts Options) error {
	return identity.Refused("the data directory %s of replica %s holds no data. If cell %s is new, start each of its replicas with --bootstrap (bootstrap: true, CHUBBYD_BOOTSTRAP=true). "+
		"If this replica has run before, its data is missing: is the disk mounted, is the path right? If its data is lost, it must not vote under its ID again: "+
		"the other replicas go on serving while they are a majority, and chubbyctl cell replace puts a new replica in its place, which is started with --join", dir, opts.ID, opts.Cell)
}

// initialize makes the directory this replica's. Without a marker it has an interrupted start's empty stores,
// or is not a replica's.
func (s *Stores) initialize(whose marker, opts Options) (*marker, error) {
	used, err := s.holdsCell()
	if err != nil {
		return nil, err
	}
	if used {
		return nil, identity.Refuse(dataError(s.dir, nil, "it holds a replica's data but not %s, which says whose: bring that file back, or name another directory", markerName))
	}
	if !opts.Bootstrap {
		return nil, noData(s.dir, opts)
	}
	if whose.Incarnation, err = identity.RandomID(); err != nil {
		return nil, err
	}
	if err := catchPanic(func() error { return s.rawVotes.Set([]byte(voterKey), []byte(whose.Incarnation)) }); err != nil {
		return nil, dataError(filepath.Join(s.dir, votesName), err, "it cannot be written")
	}
	return &whose, writeMarker(s.dir, whose)
}

// checkVoter rejects another replica's votes, with which this one could vote twice in a term.
func (s *Stores) checkVoter(m marker) error {
	path := filepath.Join(s.dir, votesName)
	voter, err := s.rawVotes.Get([]byte(voterKey))
	if err == nil && voter == nil { // an earlier version did not write the voter
		err = s.rawVotes.Set([]byte(voterKey), []byte(m.Incarnation))
		voter = []byte(m.Incarnation)
	}
	switch {
	case err != nil:
		return dataError(path, err, "the votes cannot be read, or written")
	case string(voter) != m.Incarnation:
		return identity.Refused("the votes in %s are of incarnation %.12s, and this is replica %s, of incarnation %.12s: the files are not of one replica. Put back the files that belong together; otherwise %s",
			path, voter, m.ID, m.Incarnation, identity.LossAdvice)
	}
	return nil
}

func (s *Stores) checkIdentity(opts Options) error {
	used, err := s.holdsCell()
	if err != nil {
		return err
	}
	now := s.who.Get()
	missing := func(name string) error {
		return damaged(filepath.Join(s.dir, name), nil, "it is missing or empty, though this replica has run here. Without it the replica would break promises it gave: bring it back. If it is lost")
	}
	switch {
	case used && now.Roster == nil:
		return missing(rosterName)
	case !used && now.Begun:
		return missing(votesName)
	case used && !now.Begun: // a crash came before this was stored
		return s.who.Store(now.Roster, true)
	case now.Roster == nil && !opts.Bootstrap:
		return noData(s.dir, opts)
	}
	return nil
}

// holdsCell reports whether the directory has a cell's data: a vote, an entry or a snapshot. If not, the cell
// may be bootstrapped in it, once.
func (s *Stores) holdsCell() (used bool, err error) {
	err = catchPanic(func() error {
		used, err = raft.HasExistingState(s.rawLogs, s.rawVotes, s.rawSnaps)
		if err != nil || !used {
			return err
		}
		interrupted, err := s.interruptedBootstrap()
		used = !interrupted
		return err
	})
	if err != nil {
		return false, dataError(s.dir, err, "its data cannot be read")
	}
	return used, nil
}

// interruptedBootstrap reports whether raft.BootstrapCluster wrote the first term but not the first entry. Then
// the replica has neither voted (a vote has a later term) nor acknowledged anything.
func (s *Stores) interruptedBootstrap() (bool, error) {
	term, err := s.rawVotes.GetUint64([]byte(currentTermKey))
	if err != nil || term != 1 {
		return false, err
	}
	vote, err := s.rawVotes.GetUint64([]byte(voteTermKey))
	if err != nil || vote != 0 {
		return false, err
	}
	last, err := s.rawLogs.LastIndex()
	if err != nil || last != 0 {
		return false, err
	}
	list, err := s.rawSnaps.List()
	return len(list) == 0, err
}

func checkContradiction(dir string) error {
	c, err := ReadContradiction(dir)
	if err != nil || c == nil {
		return err
	}
	return identity.Refused("no replica starts with the data in %s, because of %s there: %s", dir, ContradictionName, c.Why)
}

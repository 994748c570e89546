package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/hashicorp/raft"
)

// Owner is the replica of a data directory, and its kind of log.
type Owner struct {
	Cell, ID string
	LogStore LogStore
}

// OwnerOf reads the owner of a data directory, without changes.
func OwnerOf(dir string) (Owner, error) {
	if _, err := os.Stat(dir); err != nil {
		return Owner{}, err
	}
	m, err := readMarker(dir)
	switch {
	case err != nil:
		return Owner{}, err
	//mutant: case m == nil && dir == "": //by TestWhatCannotBeRecovered of ./cell/recovery
	case m == nil:
		return Owner{}, api.Errorf(api.InvalidArgument, "%s is no data directory of a replica: it has no %s", dir, markerName)
	}
	return Owner{Cell: m.Cell, ID: m.ID, LogStore: m.LogStore}, nil
}

// End returns the index and the term of the last entry in the snapshots and the log at their opening. Raft
// compares replicas by them.
func (s *Stores) End() (index, term uint64, err error) {
	newest, _ := s.mark.snapshots()
	if s.last <= newest.index {
		return newest.index, newest.term, nil
	}
	var last raft.Log
	if err := s.read(s.last, &last); err != nil {
		return 0, 0, err
	}
	return last.Index, last.Term, nil
}

// Voters returns the IDs of the voters in the directory's newest configuration.
func (s *Stores) Voters() (ids []string) {
	for _, server := range s.configuration.Servers {
		if server.Suffrage == raft.Voter {
			ids = append(ids, string(server.ID))
		}
	}
	return ids
}

// WasRemoved reports whether the directory says that a replica has left its cell: its newest configuration
// lacks it, or its roster says so. It knows nothing of later changes.
func (s *Stores) WasRemoved(id string) bool {
	if is := s.Identity().Get(); is.Roster != nil && is.Roster.HasLeft(id) {
		return true
	}
	servers := s.configuration.Servers
	return len(servers) > 0 && !slices.ContainsFunc(servers, func(one raft.Server) bool { return string(one.ID) == id })
}

// Replay passes the directory's contents to a state machine, as if everything were committed: the newest
// readable snapshot, if any, and the later entries. It calls applied with each entry's index. It stops at the
// first error of either.
func (s *Stores) Replay(machine raft.FSM, applied func(index uint64) error) error {
	newest, _ := s.mark.snapshots()
	//mutant: if newest.index > 1<<60 {
	if newest.index > 0 {
		contents, err := s.openSnapshot(newest)
		if err == nil {
			err = machine.Restore(contents)
		}
		if err != nil {
			return dataError(filepath.Join(s.dir, snapshotsName), err, "the snapshot of entry %d cannot be read", newest.index)
		}
	}
	for index := newest.index + 1; index <= s.last; index++ {
		one := new(raft.Log)
		if err := s.read(index, one); err != nil {
			return err
		}
		if one.Type == raft.LogCommand {
			if err, failed := machine.Apply(one).(error); failed {
				return dataError(s.dir, err, "entry %d of %d cannot be applied", index, s.last)
			}
		}
		if err := applied(index); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stores) openSnapshot(which covered) (contents io.ReadCloser, err error) {
	list, err := s.rawSnaps.List()
	for _, meta := range list {
		if meta.Index == which.index && meta.Term == which.term && !s.unreadable[meta.ID] {
			_, contents, err = s.rawSnaps.Open(meta.ID)
			return contents, err
		}
	}
	return nil, errors.Join(err, fs.ErrNotExist)
}

func (s *Stores) read(index uint64, entry *raft.Log) error {
	if err := catchPanic(func() error { return readLog(s.rawLogs, index, entry) }); err != nil {
		return &api.Error{Code: api.Corrupt, Op: "read the log", Path: s.dir, Message: fmt.Sprintf("entry %d of %d cannot be read", index, s.last), Err: err}
	}
	return nil
}

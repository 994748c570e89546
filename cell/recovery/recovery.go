package recovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/fsm"
	"github.com/chubbylock/chubby/raftfsm"
)

// Directory is the data directory of a replica, as it was found.
type Directory struct {
	Path    string
	Cell    string
	CellID  string // by which its replicas know each other
	Replica string // its ID
	Index   uint64 // of the last entry that it holds, committed or not
	Term    uint64 // of that entry

	Replicas []string // IDs of those that the cell has, as far as this one knows, in order

	Contradicted string // why its replica must not run any more, because most others had another state; "" if it may

	Removed bool // its replica was taken out of the cell, as this directory or another of those looked at says: it has nothing of later

	store disk.LogStore
	left  func(id string) bool // says whether it knows that a replica was removed
}

// Look looks at data directories of replicas of one cell. It returns them with the freshest first: the one that Raft would
// elect, whose last entry has the highest term, and of those the highest index. A directory that cannot be read, or that a replica
// runs in, is an error: it could be the freshest. One of a replica that the others have contradicted can be looked at alone.
func Look(ctx context.Context, paths []string) ([]Directory, error) {
	var list []Directory
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		d, err := look(path)
		if err != nil {
			return nil, err
		}
		//mutant: if false && len(paths) > 1 { //by TestContradictedReplicaStops of ./cell
		if d.Contradicted != "" && len(paths) > 1 {
			return nil, api.Errorf(api.InvalidArgument, "%s is of replica %s, which most others have contradicted: leave it out, or look at it alone", d.Path, d.Replica)
		}
		if i := slices.IndexFunc(list, func(other Directory) bool { return other.CellID != d.CellID || other.Replica == d.Replica }); i >= 0 {
			return nil, api.Errorf(api.InvalidArgument, "%s is of replica %s of cell %s (%.12s), and %s of replica %s of cell %s (%.12s): name directories of different replicas of one cell",
				list[i].Path, list[i].Replica, list[i].Cell, list[i].CellID, d.Path, d.Replica, d.Cell, d.CellID)
		}
		list = append(list, d)
	}
	for i := range list {
		//mutant: list[i].Removed = slices.ContainsFunc(list, func(one Directory) bool { return one.Replica == list[i].Replica && one.left(list[i].Replica) }) //by TestRemovedReplicaIsNotFresh of ./cell/recovery
		list[i].Removed = slices.ContainsFunc(list, func(one Directory) bool { return one.left(list[i].Replica) })
	}
	slices.SortStableFunc(list, func(a, b Directory) int {
		//mutant: return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(b.Index, a.Index), cmp.Compare(a.Replica, b.Replica)) //by TestRecovery of ./cell/recovery
		//mutant: return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Replica, b.Replica)) //by TestRecovery of ./cell/recovery
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(b.Index, a.Index), cmp.Compare(a.Replica, b.Replica))
	})
	return list, nil
}

// look looks at one.
func look(path string) (d Directory, err error) {
	owner, err := disk.OwnerOf(path)
	if err != nil {
		return d, err
	}
	d = Directory{Path: path, Cell: owner.Cell, Replica: owner.ID, store: owner.LogStore}
	if found, err := disk.ReadContradiction(path); err != nil {
		return d, err
	} else if found != nil {
		d.Contradicted = found.Why
	}
	stores, err := open(d)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	if d.Index, d.Term, err = stores.End(); err != nil {
		return d, err
	}
	d.left = func(string) bool { return false }
	if is := stores.Identity().Get(); is.Roster != nil {
		d.CellID, d.left = is.Roster.CellID, is.Roster.HasLeft
	}
	//mutant: if false { //by TestRemovedReplicaIsNotFresh of ./cell/recovery
	if stores.WasRemoved(d.Replica) {
		d.left = func(id string) bool { return id == d.Replica }
	}
	d.Replicas = stores.Voters()
	slices.Sort(d.Replicas)
	return d, nil
}

// open opens a directory that holds data.
func open(d Directory) (*disk.Stores, error) {
	return disk.Open(d.Path, d.store, disk.Options{
		Cell: d.Cell, ID: d.Replica, Logger: slog.New(slog.DiscardHandler), Fatal: func(error) {}, Silence: func() {},
		Inspect: true,
	})
}

// State returns the state of the cell after the last entry in the directory. progress is called after each
// entry with its index; it may be nil.
func (d Directory) State(ctx context.Context, progress func(index uint64)) (state raftfsm.State, err error) {
	stores, err := open(d)
	if err != nil {
		return state, err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	var fatal error
	replica := fsm.New(raftfsm.MaxLevel, func(raftfsm.Roster) {}, func(err error) { fatal = cmp.Or(fatal, err) })
	err = stores.Replay(replica, func(index uint64) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if progress != nil {
			progress(index)
		}
		return nil
	})
	if err = cmp.Or(fatal, err); err != nil {
		return state, err
	}
	state = replica.State().Snapshot()
	if state.CellID == "" {
		return state, &api.Error{Code: api.NotFound, Op: "recover", Path: d.Path, Message: "the replica was never in a cell that had a master: there is nothing to recover"}
	}
	return state, nil
}

package disk

import (
	"io"
	"slices"

	"github.com/hashicorp/raft"
)

// failStopSnapshots is the snapshot store, with a fail-stop. It also returns its errors: Raft gives up that
// snapshot, and does no harm until the replica has stopped.
type failStopSnapshots struct {
	inner      raft.SnapshotStore
	failStop   *failStop
	path       string
	mark       *commitMark
	unreadable map[string]bool // damaged at the start, by ID
}

var _ raft.SnapshotStore = (*failStopSnapshots)(nil)

func (s *failStopSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,

	configurationIndex uint64, trans raft.Transport,
) (sink raft.SnapshotSink, err error) {
	err = s.attempt("create a snapshot", func() error {
		sink, err = s.inner.Create(version, index, term, configuration, configurationIndex, trans)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &failStopSink{SnapshotSink: sink, store: s, covers: covered{index: index, term: term}}, nil
}

// List implements raft.SnapshotStore. It omits snapshots that were damaged at the start: Raft would restore or
// send the newest first, and its failure would end the replica after every start.
func (s *failStopSnapshots) List() (list []*raft.SnapshotMeta, err error) {
	err = s.attempt("list the snapshots", func() error {
		list, err = s.inner.List()
		return err
	})
	//mutant: return slices.DeleteFunc(list, func(meta *raft.SnapshotMeta) bool { return false && s.unreadable[meta.ID] }), err
	return slices.DeleteFunc(list, func(meta *raft.SnapshotMeta) bool { return s.unreadable[meta.ID] }), err
}

func (s *failStopSnapshots) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.attempt("open snapshot "+id, func() error {
		meta, r, err = s.inner.Open(id)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return meta, &failStopReader{ReadCloser: r, store: s}, nil
}

func (s *failStopSnapshots) attempt(verb string, do func() error) error {
	return s.failStop.attempt(storeOp{verb: verb, path: s.path}, snapshotWaits, nil, do)
}

type failStopSink struct {
	raft.SnapshotSink
	store  *failStopSnapshots
	covers covered
}

func (s *failStopSink) Write(p []byte) (n int, err error) {
	err = s.store.attempt("write a snapshot", func() error {
		n, err = s.SnapshotSink.Write(p)
		return err
	})
	return n, err
}

// Close implements raft.SnapshotSink: the snapshot is complete.
func (s *failStopSink) Close() error {
	if err := s.store.attempt("finish a snapshot", s.SnapshotSink.Close); err != nil {
		return err
	}
	s.store.mark.noteSnapshot(s.covers.index, s.covers.term)
	return nil
}

// Cancel implements raft.SnapshotSink: the snapshot is discarded.
func (s *failStopSink) Cancel() error {
	return s.store.attempt("remove an unfinished snapshot", s.SnapshotSink.Cancel)
}

type failStopReader struct {
	io.ReadCloser
	store *failStopSnapshots
}

func (r *failStopReader) Read(p []byte) (n int, err error) {
	op := storeOp{verb: "read a snapshot", path: r.store.path}
	err = r.store.failStop.attempt(op, snapshotWaits, io.EOF, func() error {
		n, err = r.ReadCloser.Read(p)
		return err
	})
	return n, err
}

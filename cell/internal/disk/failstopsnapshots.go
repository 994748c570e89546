package disk

import (
	"io"
	"slices"

	"github.com/hashicorp/raft"
)

// guardedSnapshots is the snapshot store, guarded. Its errors are fatal too,
// but they are returned: Raft gives up the one snapshot and does no harm until
// the replica has stopped.
type guardedSnapshots struct {
	inner  raft.SnapshotStore
	guard  *storeGuard
	path   string
	mark   *commitMark
	rotten map[string]bool // found to be damaged at the start, by ID
}

var _ raft.SnapshotStore = (*guardedSnapshots)(nil)

// Create implements raft.SnapshotStore.
func (s *guardedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,

	configurationIndex uint64, trans raft.Transport,
) (sink raft.SnapshotSink, err error) {
	err = s.try("create a snapshot", func() error {
		sink, err = s.inner.Create(version, index, term, configuration, configurationIndex, trans)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &guardedSink{SnapshotSink: sink, store: s, covers: covered{index: index, term: term}}, nil
}

// List implements raft.SnapshotStore. It leaves out those that were found to be damaged:
// Raft would try the newest first, to restore it or to send it, and that it cannot be
// read would end the replica, with every start anew.
func (s *guardedSnapshots) List() (list []*raft.SnapshotMeta, err error) {
	err = s.try("list the snapshots", func() error {
		list, err = s.inner.List()
		return err
	})
	return slices.DeleteFunc(list, func(meta *raft.SnapshotMeta) bool { return s.rotten[meta.ID] }), err
}

// Open implements raft.SnapshotStore.
func (s *guardedSnapshots) Open(id string) (meta *raft.SnapshotMeta, r io.ReadCloser, err error) {
	err = s.try("open snapshot "+id, func() error {
		meta, r, err = s.inner.Open(id)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return meta, &guardedReader{ReadCloser: r, store: s}, nil
}

func (s *guardedSnapshots) try(verb string, do func() error) error {
	return s.guard.try(storeOp{verb: verb, path: s.path}, snapshotPatience, nil, do)
}

// guardedSink guards the writing of one snapshot.
type guardedSink struct {
	raft.SnapshotSink
	store  *guardedSnapshots
	covers covered
}

// Write implements io.Writer.
func (s *guardedSink) Write(p []byte) (n int, err error) {
	err = s.store.try("write a snapshot", func() error {
		n, err = s.SnapshotSink.Write(p)
		return err
	})
	return n, err
}

// Close implements raft.SnapshotSink: the snapshot is complete.
func (s *guardedSink) Close() error {
	if err := s.store.try("finish a snapshot", s.SnapshotSink.Close); err != nil {
		return err
	}
	s.store.mark.snapshotted(s.covers.index, s.covers.term)
	return nil
}

// Cancel implements raft.SnapshotSink: the snapshot is thrown away.
func (s *guardedSink) Cancel() error {
	return s.store.try("remove an unfinished snapshot", s.SnapshotSink.Cancel)
}

// guardedReader guards the reading of one snapshot.
type guardedReader struct {
	io.ReadCloser
	store *guardedSnapshots
}

// Read implements io.Reader.
func (r *guardedReader) Read(p []byte) (n int, err error) {
	op := storeOp{verb: "read a snapshot", path: r.store.path}
	err = r.store.guard.try(op, snapshotPatience, io.EOF, func() error {
		n, err = r.ReadCloser.Read(p)
		return err
	})
	return n, err
}

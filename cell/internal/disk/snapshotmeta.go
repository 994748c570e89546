package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/hashicorp/raft"
)

// checkedSnapshots is Raft's snapshot store, and believes no metadata of a snapshot that
// contradict what else is known of it. The store's own checksum is of the contents
// alone: with another index or term a replica would go on from a state that is not the
// one of that entry, and take entries for overtaken that are in no snapshot; with
// another size or configuration it would spoil the data of those it sends them to.
type checkedSnapshots struct {
	raft.SnapshotStore
	path string                  // of the directory
	cell func() *identity.Roster // nil while there is none
}

// Open implements raft.SnapshotStore.
func (s checkedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, contents, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Stat(filepath.Join(s.path, id, stateName))
	if err == nil {
		err = s.contradiction(id, meta, file.Size())
	}
	if err != nil {
		return nil, nil, errors.Join(err, contents.Close())
	}
	return meta, contents, nil
}

// Create implements raft.SnapshotStore.
func (s checkedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &reapingSink{SnapshotSink: sink, store: s}, nil
}

// reapingSink has old snapshots removed when it has completed one.
type reapingSink struct {
	raft.SnapshotSink
	store checkedSnapshots
}

// Close implements raft.SnapshotSink.
func (s *reapingSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return s.store.reap(s.ID())
}

// reap removes all snapshots but the newest, and the one that was just completed. It goes
// by the names of the directories. The store itself would remove whatever directory the
// metadata of an old snapshot name: if that name has rotted away, all snapshots.
func (s checkedSnapshots) reap(completed string) error {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		_, _, ok := snapshotNamed(e.Name())
		return !ok || !e.IsDir()
	})
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		termA, indexA, _ := snapshotNamed(a.Name())
		termB, indexB, _ := snapshotNamed(b.Name())
		return cmp.Or(cmp.Compare(termB, termA), cmp.Compare(indexB, indexA), cmp.Compare(b.Name(), a.Name()))
	})
	for _, e := range entries[min(len(entries), snapshotsKept):] {
		if e.Name() == completed {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// contradiction returns what is wrong with the metadata of the snapshot in the directory
// of that name, whose contents have that size.
func (s checkedSnapshots) contradiction(name string, meta *raft.SnapshotMeta, size int64) error {
	term, index, ok := snapshotNamed(name)
	r := s.cell()
	switch {
	case !ok || meta.ID != name || meta.Term != term || meta.Index != index:
		return fmt.Errorf("its metadata are of snapshot %.64q, of entry %d and term %d", meta.ID, meta.Index, meta.Term)
	case meta.Version != raft.SnapshotVersionMax:
		return fmt.Errorf("its metadata are of version %d, and not of %d", meta.Version, raft.SnapshotVersionMax)
	case meta.Size != size:
		return fmt.Errorf("its metadata speak of %d bytes, and there are %d", meta.Size, size)
	case meta.ConfigurationIndex > meta.Index:
		return fmt.Errorf("its metadata have the configuration of entry %d, which comes after it", meta.ConfigurationIndex)
	case r == nil:
		return nil
	}
	var has []identity.Member
	for _, server := range meta.Configuration.Servers {
		if server.Suffrage != raft.Voter {
			return fmt.Errorf("its metadata have %.64q as a member without a vote", server.ID)
		}
		has = append(has, identity.Member{ID: string(server.ID), Raft: string(server.Address)})
	}
	if diff := identity.Difference(r.Members, has); len(has) != len(r.Members) || diff != "" {
		return fmt.Errorf("its metadata have %d members, and not those of the cell: %s", len(has), diff)
	}
	return nil
}

// snapshotNamed returns what the name of a snapshot's directory says of it.
func snapshotNamed(name string) (term, index uint64, ok bool) {
	var made uint64
	n, _ := fmt.Sscanf(name, "%d-%d-%d", &term, &index, &made)
	return term, index, n == 3 && name == fmt.Sprintf("%d-%d-%d", term, index, made)
}

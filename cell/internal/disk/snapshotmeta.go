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

// checkedSnapshots is Raft's snapshot store. It refuses metadata of a snapshot that
// contradict what else is known of it, because the store's own checksum covers the
// contents alone. With another index or term a replica would go on from a state that is
// not the one of that entry, and would treat entries as overtaken that are in no
// snapshot. With another size or configuration it would damage the data of the replicas
// to which it sends the snapshot.
type checkedSnapshots struct {
	raft.SnapshotStore
	path   string                  // of the directory
	roster func() *identity.Roster // nil while there is none
}

// Open implements raft.SnapshotStore.
func (s checkedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, contents, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Stat(filepath.Join(s.path, id, stateName))
	if err == nil {
		err = s.checkMeta(id, meta, file.Size())
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
	return &cleaningSink{SnapshotSink: sink, store: s}, nil
}

// cleaningSink removes old snapshots after it has completed one.
type cleaningSink struct {
	raft.SnapshotSink
	store checkedSnapshots
}

// Close implements raft.SnapshotSink.
func (s *cleaningSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return s.store.removeOld(s.ID())
}

// removeOld removes all snapshots except the newest maxSnapshots and the one that was
// just completed. It goes by the names of the directories. The store itself would remove
// whatever directory the metadata of an old snapshot name: with a damaged name, all
// snapshots.
func (s checkedSnapshots) removeOld(completed string) error {
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
	for _, e := range entries[min(len(entries), maxSnapshots):] {
		if e.Name() == completed {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.path, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// checkMeta returns what is wrong with the metadata of the snapshot in the directory of
// that name, whose contents have that size.
func (s checkedSnapshots) checkMeta(name string, meta *raft.SnapshotMeta, size int64) error {
	term, index, ok := snapshotNamed(name)
	r := s.roster()
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

// snapshotNamed returns the term and the index in the name of a snapshot directory; ok
// is false for other names.
func snapshotNamed(name string) (term, index uint64, ok bool) {
	var made uint64
	n, _ := fmt.Sscanf(name, "%d-%d-%d", &term, &index, &made)
	return term, index, n == 3 && name == fmt.Sprintf("%d-%d-%d", term, index, made)
}

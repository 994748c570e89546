package cell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// checkedSnapshots is Raft's snapshot store, and believes no metadata of a snapshot that
// contradict what else is known of it. The store's own checksum is of the contents
// alone: with another index or term a replica would go on from a state that is not the
// one of that entry, and take entries for overtaken that are in no snapshot; with
// another size or configuration it would spoil the data of those it sends them to.
type checkedSnapshots struct {
	raft.SnapshotStore
	path string         // of the directory
	cell func() *roster // nil while there is none
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
	var has []rosterMember
	for _, server := range meta.Configuration.Servers {
		if server.Suffrage != raft.Voter {
			return fmt.Errorf("its metadata have %.64q as a member without a vote", server.ID)
		}
		has = append(has, rosterMember{ID: string(server.ID), Raft: string(server.Address)})
	}
	if diff := difference(r.Members, has); len(has) != len(r.Members) || diff != "" {
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

package disk

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/identity"
	"github.com/chubbylock/chubby/internal/durable"
	"github.com/hashicorp/raft"
)

// checkedSnapshots is Raft's snapshot store. It rejects a snapshot's metadata that contradict other facts,
// since the store's checksum covers only the contents. With a wrong index or term, a replica would go on from
// another entry's state, and consider entries overtaken that are in no snapshot. With a wrong size or
// configuration, it would damage the replicas to which it sends the snapshot.
type checkedSnapshots struct {
	raft.SnapshotStore
	path   string                  // of the directory
	roster func() *identity.Roster // nil while unknown
}

func (s checkedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, contents, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.Stat(filepath.Join(s.path, id, stateName))
	summed := false
	if err == nil {
		summed, err = s.checkSum(id)
	}
	if err == nil {
		//mutant: _ = s.checkMeta(id, meta, file.Size(), summed)
		err = s.checkMeta(id, meta, file.Size(), summed)
	}
	if err != nil {
		return nil, nil, errors.Join(err, contents.Close())
	}
	return meta, contents, nil
}

func (s checkedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(s.path, sink.ID()+tmpSuffix, stateName), os.O_WRONLY, 0) // besides the sink's own
	if err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return &cleaningSink{SnapshotSink: sink, store: s, steady: durable.NewSteadyWriter(sink, file.Sync), closeFile: sync.OnceValue(file.Close)}, nil
}

// cleaningSink syncs a snapshot while it grows, and removes old ones after it is complete.
type cleaningSink struct {
	raft.SnapshotSink
	store     checkedSnapshots
	steady    *durable.SteadyWriter
	closeFile func() error // closes the file for syncs; idempotent, since Raft may cancel twice
}

// Write implements io.Writer. One sync at the end would make the log, on the same disk, wait for the whole snapshot.
func (s *cleaningSink) Write(p []byte) (int, error) { return s.steady.Write(p) }

func (s *cleaningSink) Cancel() error { return errors.Join(s.closeFile(), s.SnapshotSink.Cancel()) }

func (s *cleaningSink) Close() error {
	if err := errors.Join(s.closeFile(), s.SnapshotSink.Close()); err != nil {
		return err
	}
	if err := s.store.writeSum(s.ID()); err != nil {
		return err
	}
	return s.store.removeOld(s.ID())
}

// writeSum writes the checksum beside a snapshot's metadata. A crash before this, or an older version, leaves none.
func (s checkedSnapshots) writeSum(id string) error {
	sum, err := s.sumOf(id)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(s.path, id, metaSumName), []byte(sum+"\n"))
}

func (s checkedSnapshots) sumOf(id string) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.path, id, metaName))
	return fmt.Sprintf("%08x", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))), err
}

// checkSum compares a snapshot's metadata with their checksum, if there is one.
func (s checkedSnapshots) checkSum(id string) (summed bool, err error) {
	want, err := os.ReadFile(filepath.Join(s.path, id, metaSumName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sum, err := s.sumOf(id)
	//mutant: if err == nil && sum == strings.TrimSpace("") {
	if err == nil && sum != strings.TrimSpace(string(want)) {
		err = fmt.Errorf("the checksum of its metadata is %.8q, and %s was computed", want, sum)
	}
	return true, err
}

// removeOld removes all snapshots except the newest maxSnapshots and the one just completed, by their
// directories' names. The store itself would remove the directory named in the metadata: with a damaged name,
// all snapshots.
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

// checkMeta returns what is wrong with the metadata of the snapshot with that directory name and size. If
// summed, their checksum is right, so unusual contents are no damage.
func (s checkedSnapshots) checkMeta(name string, meta *raft.SnapshotMeta, size int64, summed bool) error {
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
	return checkServers(meta.Configuration.Servers, r, summed)
}

// checkServers returns what is wrong with a configuration of Raft. Another replica's snapshot may have members
// unknown to the roster; known ones keep their addresses.
func checkServers(servers []raft.Server, r *identity.Roster, summed bool) error {
	voters := 0
	seen := map[raft.ServerID]bool{}
	for _, server := range servers {
		switch {
		case server.Suffrage == raft.Voter:
			voters++
		case server.Suffrage != raft.Nonvoter || !summed:
			return fmt.Errorf("its metadata have %.64q as a member without a vote", server.ID)
		}
		if !api.ValidCell(string(server.ID)) || seen[server.ID] || server.Address == "" {
			return fmt.Errorf("its metadata have %.64q as a member, which cannot be, or is there twice", server.ID)
		}
		seen[server.ID] = true
		for _, m := range r.Members {
			if m.ID == string(server.ID) && m.Raft != string(server.Address) {
				return fmt.Errorf("its metadata have %s at the raft address %.64q, and the cell at %s", m.ID, server.Address, m.Raft)
			}
		}
	}
	if voters == 0 {
		return errors.New("its metadata have no member with a vote")
	}
	return nil
}

// snapshotNamed returns the term and the index in a snapshot directory's name; ok is false for other names.
func snapshotNamed(name string) (term, index uint64, ok bool) {
	var made uint64
	n, _ := fmt.Sscanf(name, "%d-%d-%d", &term, &index, &made)
	return term, index, n == 3 && name == fmt.Sprintf("%d-%d-%d", term, index, made)
}

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

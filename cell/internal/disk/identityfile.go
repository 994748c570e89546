package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/chubbylock/chubby/cell/internal/identity"
)

// cellFile is the contents of rosterName. It has a checksum, since with readable damage this replica would tell
// a healthy one that it has lost its data, and end it.
type cellFile struct {
	identity.Roster
	Begun  bool   `json:"begun"`
	Joined bool   `json:"joined,omitempty"`
	Sum    string `json:"sum,omitempty"` // of the rest; earlier versions wrote none
}

// sum returns the checksum of the other fields (CRC32C), in hexadecimal.
func (c cellFile) sum() (string, error) {
	c.Sum = ""
	text, err := json.Marshal(c)
	return fmt.Sprintf("%08x", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))), err
}

// IdentityFile is the identity of an open data directory. It is safe for concurrent use.
type IdentityFile struct {
	path    string
	current atomic.Pointer[identity.Replica]
	writing sync.Mutex // serializes writers; held across I/O, and never taken by readers
}

func readIdentity(dir string, m marker) (*IdentityFile, error) {
	f := &IdentityFile{path: filepath.Join(dir, rosterName)}
	now := identity.Replica{ID: m.ID, Incarnation: m.Incarnation}
	text, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, dataError(f.path, err, "it cannot be read")
	default:
		var c cellFile
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, damaged(f.path, err, "it is damaged")
		}
		//mutant: if sum, err := c.sum(); err != nil || c.Sum != "" && c.Sum == "rotten" {
		if sum, err := c.sum(); err != nil || c.Sum != "" && c.Sum != sum {
			return nil, damaged(f.path, err, "it is damaged: its checksum is %.8q, and %s was computed", c.Sum, sum)
		}
		now.Roster, now.Begun, now.Joined = &c.Roster, c.Begun, c.Joined
		if known := c.IncarnationOf(m.ID); known != m.Incarnation {
			return nil, identity.Refused("the data directory %s is of incarnation %.12s, and its cell knows replica %s as %.12s: its files are not of one replica. Put back the files that belong together; otherwise %s",
				dir, m.Incarnation, m.ID, known, identity.LossAdvice)
		}
	}
	f.current.Store(&now)
	return f, nil
}

// Get returns the stored identity.
func (f *IdentityFile) Get() identity.Replica { return *f.current.Load() }

// Store durably writes the roster, and whether Raft may be started.
func (f *IdentityFile) Store(r *identity.Roster, begun bool) error {
	return f.change(func(now *identity.Replica) bool {
		now.Roster, now.Begun = r, begun
		return true
	})
}

// Join durably records that a running cell has let this replica in.
func (f *IdentityFile) Join(r *identity.Roster) error {
	return f.change(func(now *identity.Replica) bool {
		now.Roster, now.Joined = r, true
		return true
	})
}

// HoldsData durably records that a joined replica holds data; without it later, the replica has lost that.
func (f *IdentityFile) HoldsData() error {
	return f.change(func(now *identity.Replica) bool {
		was := now.Begun
		now.Begun = true
		return !was
	})
}

// Update durably changes the roster. next returns nil for no change.
func (f *IdentityFile) Update(next func(*identity.Roster) *identity.Roster) error {
	return f.change(func(now *identity.Replica) bool {
		r := next(now.Roster)
		if r != nil {
			now.Roster = r
		}
		return r != nil
	})
}

func (f *IdentityFile) change(edit func(*identity.Replica) bool) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	now := f.Get()
	if !edit(&now) {
		return nil
	}
	c := cellFile{Roster: *now.Roster, Begun: now.Begun, Joined: now.Joined}
	var err error
	if c.Sum, err = c.sum(); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := writeDurably(f.path, append(text, '\n')); err != nil {
		return err
	}
	f.current.Store(&now)
	return nil
}

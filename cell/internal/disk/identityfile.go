package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/chubbylock/chubby/cell/internal/identity"
)

// cellFile is the contents of rosterName. It has a checksum because damage that leaves
// it readable would make this replica tell a healthy one that it has lost its data, and
// so end it.
type cellFile struct {
	identity.Roster
	Begun bool   `json:"begun"`
	Sum   string `json:"sum,omitempty"` // of the rest; earlier versions wrote none
}

// sum returns the checksum of the rest (CRC32C), in hexadecimal.
func (c cellFile) sum() (string, error) {
	c.Sum = ""
	text, err := json.Marshal(c)
	return fmt.Sprintf("%08x", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))), err
}

// IdentityFile is the identity of an open data directory. Get is for any goroutine, the
// rest for the one that starts the replica.
type IdentityFile struct {
	path    string
	current atomic.Pointer[identity.Replica]
}

// readIdentity reads the identity of the directory that has that marker.
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
		if sum, err := c.sum(); err != nil || c.Sum != "" && c.Sum != sum {
			return nil, damaged(f.path, err, "it is damaged: its checksum is %.8q, and %s was computed", c.Sum, sum)
		}
		now.Roster, now.Begun = &c.Roster, c.Begun
		if known := c.IncarnationOf(m.ID); known != m.Incarnation {
			return nil, identity.Refused("the data directory %s is of incarnation %.12s, and its cell knows replica %s as %.12s: its files are not of one replica. Put back the files that belong together; otherwise %s",
				dir, m.Incarnation, m.ID, known, identity.LossAdvice)
		}
	}
	f.current.Store(&now)
	return f, nil
}

// Get returns the identity as it is stored.
func (f *IdentityFile) Get() identity.Replica { return *f.current.Load() }

// Store makes the roster, and whether Raft may be started, durable.
func (f *IdentityFile) Store(r *identity.Roster, begun bool) error {
	c := cellFile{Roster: *r, Begun: begun}
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
	now := f.Get()
	now.Roster, now.Begun = r, begun
	f.current.Store(&now)
	return nil
}

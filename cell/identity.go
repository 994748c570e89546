package cell

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// identity says which replica of which cell a data directory is. A replica is
// known to the others by its ID and its incarnation together: the incarnation is
// drawn when the directory is made and lost with it, so that a replica that comes
// back with an empty disk is not taken for the one that voted before
// (docs/adr/0009-bootstrap-and-identity.md).
//
// It is a value; changes are made by identityFile.
type identity struct {
	id          string
	incarnation string
	roster      *roster // nil until the cell's bootstrap has reached this replica
	begun       bool    // Raft has been or may be started: every member had stored the roster
}

// roster is a cell at its bootstrap: its id, and which data directories are its
// replicas. It is drawn once and never changed.
type roster struct {
	CellID  string         `json:"cell_id"`
	Members []rosterMember `json:"members"`
}

// rosterMember is one replica of a roster.
type rosterMember struct {
	ID          string `json:"id"`
	Raft        string `json:"raft"`
	Incarnation string `json:"incarnation,omitempty"`
}

// incarnationOf returns the incarnation of a member, "" for an id that is not one.
func (r *roster) incarnationOf(id string) string {
	for _, m := range r.Members {
		if m.ID == id {
			return m.Incarnation
		}
	}
	return ""
}

// lists reports whether those are the roster's members.
func (r *roster) lists(members []rosterMember) bool {
	return slices.EqualFunc(r.Members, members, func(a, b rosterMember) bool { return a.ID == b.ID && a.Raft == b.Raft })
}

// cellID returns the id of the cell whose replica this is, "" before it has one.
func (i identity) cellID() string {
	if i.roster == nil || !i.begun {
		return ""
	}
	return i.roster.CellID
}

// randomID draws 128 bits.
func randomID() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("draw random bytes: %w", err)
	}
	return hex.EncodeToString(b), nil
}

// cellFile is what rosterName holds. Damage that leaves it legible would have this
// replica tell a healthy one that it has lost its data, and so end it.
type cellFile struct {
	roster
	Begun bool   `json:"begun"`
	Sum   string `json:"sum,omitempty"` // of the rest; earlier versions wrote none
}

// sum returns the checksum of the rest (CRC32C), in hexadecimal.
func (c cellFile) sum() (string, error) {
	c.Sum = ""
	text, err := json.Marshal(c)
	return fmt.Sprintf("%08x", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))), err
}

// identityFile is the identity of an open data directory. get is for any
// goroutine, the rest for the one that starts the replica.
type identityFile struct {
	path string
	now  atomic.Pointer[identity]
}

// readIdentity reads the identity of the directory that the marker is of.
func readIdentity(dir string, m marker) (*identityFile, error) {
	f := &identityFile{path: filepath.Join(dir, rosterName)}
	now := identity{id: m.ID, incarnation: m.Incarnation}
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
		now.roster, now.begun = &c.roster, c.Begun
		if known := c.incarnationOf(m.ID); known != m.Incarnation {
			return nil, refused("the data directory %s is of incarnation %.12s, and its cell knows replica %s as %.12s: its files are not of one replica. Put back the files that belong together; otherwise %s",
				dir, m.Incarnation, m.ID, known, lossAdvice)
		}
	}
	f.now.Store(&now)
	return f, nil
}

// get returns the identity as it is stored.
func (f *identityFile) get() identity { return *f.now.Load() }

// store makes the roster, and whether Raft may be started, durable.
func (f *identityFile) store(r *roster, begun bool) error {
	c := cellFile{roster: *r, Begun: begun}
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
	now := f.get()
	now.roster, now.begun = r, begun
	f.now.Store(&now)
	return nil
}

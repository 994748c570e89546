package disk

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/chubbylock/chubby/cell/internal/identity"
)

// Contradiction is why a replica must not run on its data: a majority has another state after the same entry.
type Contradiction struct {
	Index  uint64   `json:"index"` // of that entry
	Ours   string   `json:"ours"`  // a hash of the state there
	Theirs string   `json:"theirs"`
	By     []string `json:"by"`  // who contradicts
	Why    string   `json:"why"` // for people, with what to do next
}

// NoteContradiction durably forbids replicas to run on this directory. It changes nothing else there.
func (s *Stores) NoteContradiction(c Contradiction) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	//mutant: _ = text; return nil //by TestContradictedReplicaStops of ./cell
	return writeDurably(filepath.Join(s.dir, ContradictionName), append(text, '\n'))
}

// ReadContradiction returns why no replica may run on a directory, or nil. An unreadable note counts.
func ReadContradiction(dir string) (*Contradiction, error) {
	path := filepath.Join(dir, ContradictionName)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case isDenied(err):
		return nil, dataError(path, err, "it cannot be read")
	}
	c := &Contradiction{}
	//mutant: if json.Unmarshal(text, c) != nil { return nil, nil }; if c.Why == "" {
	if err != nil || json.Unmarshal(text, c) != nil || c.Why == "" {
		c.Why = "the others had another state than this replica: " + identity.LossAdvice
	}
	return c, nil
}

func checkContradiction(dir string) error {
	c, err := ReadContradiction(dir)
	if err != nil || c == nil {
		return err
	}
	return identity.Refused("no replica starts with the data in %s, because of %s there: %s", dir, ContradictionName, c.Why)
}

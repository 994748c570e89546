package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// A description of another state than the one in it makes it no backup.
func TestDescriptionOfAnotherState(t *testing.T) {
	_, text := written(t)
	rest := text[len(magic) : len(text)-sha256.Size]
	n, k := binary.Uvarint(rest)
	var about About
	if err := json.Unmarshal(rest[k:k+int(n)], &about); err != nil {
		t.Fatal(err)
	}
	about.Nodes, about.Sessions, about.Locks, about.Epoch, about.Level, about.Contents = 12345, 777, 99, 42, -7, 1<<40
	a, _ := json.Marshal(about)
	var out bytes.Buffer
	out.WriteString(magic)
	_ = writeRecord(&out, a)
	out.Write(rest[k+int(n):])
	sum := sha256.Sum256(out.Bytes())
	out.Write(sum[:])
	if b, err := Read(&out); err == nil {
		t.Errorf("it is said to be whole: %+v", b.About)
	}
}

// A file with the cell's secret is said to be a whole backup, of which the docs say that it has none.
func TestSecretInside(t *testing.T) {
	state := raftfsm.NewState()
	state.Apply(1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{
		Cell: "foo", CellID: api.CellID(strings.Repeat("ab", 16)), Secret: []byte("the secret of the cell, which signs"), Level: raftfsm.MaxLevel,
	}}}})
	var snap bytes.Buffer
	if _, err := state.WriteTo(&snap); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(aboutOf(state, 0, ""))
	var out bytes.Buffer
	out.WriteString(magic)
	_ = writeRecord(&out, a)
	_, _ = chunkWriter{&out}.Write(snap.Bytes())
	_ = writeRecord(&out, nil)
	sum := sha256.Sum256(out.Bytes())
	out.Write(sum[:])
	if b, err := Read(&out); err == nil {
		t.Errorf("State has the secret %q, and is said to be without", b.State.Secret)
	}
}

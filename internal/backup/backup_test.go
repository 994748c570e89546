package backup

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// written is a backup of a cell that has begun, with a secret.
func written(t testing.TB) (raftfsm.State, []byte) {
	t.Helper()
	state := raftfsm.NewState()
	state.Apply(1, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{{NewEpoch: &raftfsm.NewEpoch{
		Cell: "foo", CellID: api.CellID(strings.Repeat("ab", 16)), Secret: []byte("the secret of the cell, which signs"), Level: raftfsm.MaxLevel,
	}}}})
	var out bytes.Buffer
	if err := Write(&out, state, 1_800_000_000, "r4"); err != nil {
		t.Fatal(err)
	}
	return state, out.Bytes()
}

// What is written is read, without the secret, and followed to the same sum.
func TestBackup(t *testing.T) {
	state, text := written(t)
	if bytes.Contains(text, state.Secret) {
		t.Error("the secret is in it")
	}
	b, err := Read(iotest.OneByteReader(bytes.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	want := About{Cell: "foo", CellID: state.CellID, Index: 1, Epoch: 1, Level: raftfsm.MaxLevel, Nodes: state.Tree.Counts().Nodes, Contents: state.Tree.Counts().Bytes, TakenUnix: 1_800_000_000, Counter: state.Counter, Recovered: "r4"}
	if b.About != want || b.Bytes != int64(len(text)) {
		t.Errorf("got %+v of %d bytes, want %+v of %d", b.About, b.Bytes, want, len(text))
	}
	state.Secret = nil
	is, err1 := b.State.Hash()
	was, err2 := state.Hash()
	if err := errors.Join(err1, err2); err != nil || is != was {
		t.Errorf("the state's hash is %s, and was %s, %v", is, was, err)
	}
	for _, size := range []int{1, 7, 31, 32, 33, 1000, len(text)} {
		f := NewFollower()
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			_, _ = f.Write(rest[:n])
			rest = rest[n:]
		}
		about, n, sum, err := f.Finish()
		if about != want || n != b.Bytes || sum != b.Checksum || err != nil {
			t.Errorf("followed %d bytes at a time: %+v, %d, %s, %v", size, about, n, sum, err)
		}
	}
}

// A backup of which a byte is missing, added or another is none.
func TestDamagedBackups(t *testing.T) {
	_, text := written(t)
	refused := func(what string, damaged []byte) {
		t.Helper()
		if _, err := Read(bytes.NewReader(damaged)); !errors.Is(err, api.Corrupt) {
			t.Errorf("%s: %v", what, err)
		}
		f := NewFollower()
		_, _ = f.Write(damaged)
		if _, _, _, err := f.Finish(); !errors.Is(err, api.Corrupt) {
			t.Errorf("%s, followed: %v", what, err)
		}
	}
	for i := range text {
		damaged := bytes.Clone(text)
		damaged[i] ^= 0x20
		refused("another byte", damaged)
		refused("cut off", text[:i])
	}
	refused("something behind it", append(bytes.Clone(text), 0))
	refused("another format", bytes.Replace(text, []byte(magic), []byte(magicText+"2\n"), 1))
	if _, err := Read(bytes.NewReader(bytes.Replace(text, []byte(magic), []byte(magicText+"2\n"), 1))); !strings.Contains(err.Error(), "use a newer one") {
		t.Error(err)
	}
}

// What cannot be written is an error.
func TestWriteFails(t *testing.T) {
	state, text := written(t)
	for most := range len(text) {
		if err := Write(&full{most: most}, state, 1_800_000_000, "r4"); !errors.Is(err, io.ErrShortWrite) {
			t.Fatalf("after %d bytes: %v", most, err)
		}
	}
}

// full is a disk with room for so many bytes.
type full struct{ most int }

func (f *full) Write(p []byte) (int, error) {
	if f.most -= len(p); f.most < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// FuzzRead looks for input that makes the reader panic, or take much memory.
func FuzzRead(f *testing.F) {
	_, text := written(f)
	f.Add(text)
	f.Add([]byte(magic + "\xff\xff\x3f"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := Read(bytes.NewReader(text)); err == nil && b.Bytes != int64(len(text)) {
			t.Errorf("%d bytes of %d are a backup", b.Bytes, len(text))
		}
	})
}

package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
	"pgregory.net/rapid"
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

// Read returns what Write wrote, without the secret, and a Follower finds the same sum.
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

// A backup with a missing, additional or changed byte is refused.
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

// A write that fails is an error.
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

// Every part of a backup fits into a command of the log, whatever nodes a cell has: lists, principals, paths and contents of any
// legal length. Otherwise the cell could not be restored. Nothing is left out of the parts.
func TestPartsFitIntoACommand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(limit int, what string) string {
			return strings.Repeat("x", rapid.OneOf(rapid.SampledFrom([]int{1, limit}), rapid.IntRange(1, limit)).Draw(t, what))
		}
		spec := namespace.Spec{
			Kind:         api.File,
			ACL:          api.ACL{Read: text(api.MaxComponent, "read"), Write: text(api.MaxComponent, "write"), Change: text(api.MaxComponent, "change")},
			Creator:      text(api.MaxPrincipal, "creator"),
			ModifiedUnix: 1 << 40,
		}
		files := 1500
		if rapid.Bool().Draw(t, "large files") {
			spec.Contents, files = []byte(text(api.MaxContents, "contents")), 4
		}
		width := rapid.IntRange(5, api.MaxComponent).Draw(t, "name")
		state := raftfsm.NewState()
		state.Tree.Edit()
		dir := api.Name("/" + text(api.MaxComponent, "directory"))
		_, err := state.Tree.Create(dir, namespace.Spec{Kind: api.Directory}, api.MaxGeneration)
		for i := range files {
			_, one := state.Tree.Create(dir+api.Name(fmt.Sprintf("/%0*d", width, i)), spec, api.MaxGeneration)
			err = errors.Join(err, one)
		}
		state.Tree.Settle()
		if err != nil {
			t.Fatal(err)
		}
		if nodes, _ := restored(t, state); nodes != state.Tree.Counts().Nodes {
			t.Fatalf("the parts have %d nodes, and the cell has %d", nodes, state.Tree.Counts().Nodes)
		}
	})
}

// The same of quotas.
func TestQuotasFitIntoACommand(t *testing.T) {
	const most = 1500
	state := raftfsm.NewState()
	do := func(index uint64, c raftfsm.Command) raftfsm.Result {
		return state.Apply(index, 1, raftfsm.Entry{Epoch: 1, Commands: []raftfsm.Command{c}})[0]
	}
	do(1, raftfsm.Command{NewEpoch: &raftfsm.NewEpoch{Cell: "local", CellID: api.CellID(strings.Repeat("ab", 16)), Secret: []byte("s"), Level: raftfsm.MaxLevel}})
	id := do(2, raftfsm.Command{CreateSession: &raftfsm.CreateSession{Nonce: []byte("n"), Principal: "operator", Lease: api.DefaultLease}}).Session
	for i := range most {
		n := api.RequestNumber(i + 1)
		m := session.Mutation{Session: id, Number: n, HighestIssued: n, Outstanding: []api.RequestNumber{n}, Hash: uint64(n)}
		q := api.Quota{Nodes: 1 << 40, Bytes: 1 << 40, Sessions: 1 << 40, Handles: 1 << 40, Waiters: 1 << 40}
		if r := do(uint64(i+3), raftfsm.Command{SetQuota: &raftfsm.SetQuota{Mutation: m, Principal: fmt.Sprintf("%0*d", api.MaxPrincipal, i), Quota: q}}); r.Refusal != nil {
			t.Fatal(r.Refusal.Message())
		}
	}
	if _, quotas := restored(t, state); quotas != most {
		t.Errorf("the parts have %d quotas, and the cell has %d", quotas, most)
	}
}

// restored returns how many nodes and quotas the parts of a state have. It fails the test if one is larger than a command may be.
func restored(t interface{ Fatalf(string, ...any) }, state raftfsm.State) (nodes, quotas int) {
	largest := session.Mutation{Session: 1<<64 - 1, Number: 1<<64 - 1, HighestIssued: 1<<64 - 1, Hash: 1<<64 - 1}
	for i := range uint64(api.MaxOutstanding) {
		largest.Outstanding = append(largest.Outstanding, api.RequestNumber(1<<64-1-i))
	}
	parts, announced := Parts(state)
	for part, err := range parts {
		if err != nil {
			t.Fatalf("%v", err)
		}
		add, err := raftfsm.DecodeRestoreAdd(part)
		if err != nil {
			t.Fatalf("%v", err)
		}
		nodes, quotas = nodes+len(add.Nodes), quotas+len(add.Quotas)
		command, err := raftfsm.Command{Restore: &raftfsm.Restore{Mutation: largest, Add: add}}.Encode(raftfsm.MaxLevel)
		if err != nil || len(command) > api.MaxCommand {
			t.Fatalf("a part of %d nodes and %d quotas takes %d bytes in the log, and at most %d are allowed; %v", len(add.Nodes), len(add.Quotas), len(command), api.MaxCommand, err)
		}
	}
	if quotas != announced {
		t.Fatalf("%d quotas were announced, and there are %d", announced, quotas)
	}
	return nodes, quotas
}

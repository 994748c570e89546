package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/chubbylock/chubby/raftfsm"
)

// replayLog stops the replica with the bbolt log, applies that log with the packages of both
// versions, and compares the snapshots that they write: below the level of this version they
// are the same to the byte. So each version can restore what the other has kept. What comes
// after is applied to the snapshot of the release.
//
// The replicas have taken no snapshots: the test is too short for that.
func (u *upgrade) replayLog() {
	u.t.Helper()
	s := u.waitStatus(u.checkApplied)
	u.endReplica(boltID, syscall.SIGTERM)
	delete(u.procs, boltID)
	entries, err := readLog(filepath.Join(u.dir, boltID, "log.db"), s.Replicas[0].Applied)
	if err != nil {
		u.t.Fatal(err)
	}
	if len(entries) == 0 || entries[0].Index > 3 {
		u.t.Fatalf("the log of %s does not go back to its beginning: it has %d entries", boltID, len(entries))
	}
	whole, before := raftfsm.NewState(), raftfsm.NewState()
	common := 0 // how many entries the release can apply
	for i, e := range entries {
		if _, err := whole.ApplyData(e.Index, e.Term, e.Data, raftfsm.MaxLevel); err != nil {
			u.t.Fatalf("apply entry %d: %v", e.Index, err)
		}
		if whole.Level <= u.level {
			before, common = whole, i+1
		}
	}
	if hash := fmt.Sprintf("%016x", whole.History); hash != s.Replicas[0].StateHash {
		u.t.Errorf("at %d, the log of %s gives the state hash %s; the replicas have %s", whole.Applied, boltID, hash, s.Replicas[0].StateHash)
	}

	var mine bytes.Buffer
	if _, err := before.WriteTo(&mine); err != nil {
		u.t.Fatal(err)
	}
	released := u.replayByRelease(entries[:common])
	if !bytes.Equal(mine.Bytes(), released) {
		u.t.Fatalf("after %d entries, %s and this version write different snapshots, of %d and %d bytes", common, u.released.name, len(released), mine.Len())
	}
	restored, err := raftfsm.ReadState(bytes.NewReader(released), raftfsm.MaxLevel)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, e := range entries[common:] {
		if _, err := restored.ApplyData(e.Index, e.Term, e.Data, raftfsm.MaxLevel); err != nil {
			u.t.Fatalf("apply entry %d to a snapshot of %s: %v", e.Index, u.released.name, err)
		}
	}
	want, err := whole.Hash()
	if err != nil {
		u.t.Fatal(err)
	}
	if got, err := restored.Hash(); err != nil || got != want {
		u.t.Errorf("from a snapshot of %s, the log leads to another state: %v", u.released.name, err)
	}
	u.t.Logf("both versions write the same snapshot of %d bytes after %d entries; %d follow", mine.Len(), common, len(entries)-common)
}

// readLog returns the entries up to an index that are for the state machine.
func readLog(path string, last uint64) (entries []raft.Log, err error) {
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{ReadOnly: true}, MsgpackUseNewTimeFormat: true})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	first, err := store.FirstIndex()
	if err != nil {
		return nil, err
	}
	for index := first; index <= last; index++ {
		var e raft.Log
		if err := store.GetLog(index, &e); err != nil {
			return nil, fmt.Errorf("entry %d: %w", index, err)
		}
		if e.Type == raft.LogCommand {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// replayByRelease returns the snapshot that the release writes after these entries.
func (u *upgrade) replayByRelease(entries []raft.Log) []byte {
	u.t.Helper()
	var in bytes.Buffer
	for _, e := range entries {
		for _, n := range []uint64{e.Index, e.Term, uint64(len(e.Data))} {
			in.Write(binary.BigEndian.AppendUint64(nil, n))
		}
		in.Write(e.Data)
	}
	cmd := exec.Command(u.released.bin("replay"))
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		u.t.Fatalf("replay by %s: %v\n%s", u.released.name, err, &stderr)
	}
	return stdout.Bytes()
}

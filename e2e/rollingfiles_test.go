package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// fileSet is the files that were created in a directory, each by one acknowledged write, and
// those who watch the directory.
type fileSet struct {
	dir     string
	handle  *client.Handle // of a client without a cache
	release *process       // chubbyctl watch

	mu    sync.Mutex           // guards the rest
	files map[string]time.Time // when the write of each began
	seen  []seenEvent          // by a client of this version
}

// seenEvent is an event, and when a client had it.
type seenEvent struct {
	At    time.Time `json:"time"`
	Kind  string    `json:"event"`
	Child string
}

// writeFiles has clients of both versions create files, and watch.
func (l *traffic) writeFiles(dir string) *fileSet {
	t := l.cell.t
	t.Helper()
	s := &fileSet{dir: dir, files: map[string]time.Time{}}
	var err error
	s.handle, err = l.cell.newClient(client.Config{NoCache: true}).Open(t.Context(), dir, client.OpenOptions{
		Read:   true,
		Create: client.Directory,
		Events: []api.EventKind{api.EventChildAdded},
	})
	noErr(t, err)
	s.release = spawn(t, nil, l.release.bin("chubbyctl"), "--servers", l.cell.servers(), "-v", "-o", "json", "watch", dir, "--events", "child-added")
	s.release.waitFor("watching", 20*time.Second)
	var watching sync.WaitGroup
	watching.Go(func() { l.watch(t.Context(), s) })
	t.Cleanup(watching.Wait)

	for i := range 2 {
		c := l.cell.newClient(client.Config{})
		n := 0
		l.repeat("a writer of files", 80*time.Millisecond, func(ctx context.Context) error {
			n++
			return s.create(fmt.Sprintf("new-%d-%d", i, n), func(path, contents string) error {
				h, err := c.Open(ctx, path, client.OpenOptions{Write: true, Create: client.NewFile, Contents: []byte(contents)})
				if err != nil {
					return err
				}
				return h.Close(ctx)
			})
		})
	}
	n := 0
	l.repeat("a writer of files of the release", 300*time.Millisecond, func(ctx context.Context) error {
		n++
		return s.create(fmt.Sprintf("released-%d", n), func(path, contents string) error {
			_, err := l.mustCtl(ctx, "put", path, contents)
			return err
		})
	})
	return s
}

// create creates a file by a function, and remembers it when that has succeeded.
func (s *fileSet) create(name string, do func(path, contents string) error) error {
	began := time.Now()
	if err := do(s.dir+"/"+name, contentsOf(name)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = began
	return nil
}

func contentsOf(name string) string { return "the contents of " + name }

// watch keeps the events of a client of this version. It goes on after stop: events come after what they report.
func (l *traffic) watch(ctx context.Context, s *fileSet) {
	for {
		e, err := s.handle.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.report(fmt.Errorf("the events of %s: %w", s.dir, err))
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, seenEvent{At: time.Now(), Kind: e.Kind.String(), Child: e.Child})
		s.mu.Unlock()
	}
}

// seenByRelease is what the release's chubbyctl watch has printed.
func (s *fileSet) seenByRelease() (all []seenEvent, err error) {
	printed := s.release.stdout.String()
	whole := strings.LastIndexByte(printed, '\n') + 1
	for lines := bufio.NewScanner(strings.NewReader(printed[:whole])); lines.Scan(); {
		var e seenEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("chubbyctl watch printed %q: %w", lines.Text(), err)
		}
		all = append(all, e)
	}
	return all, nil
}

// checkEvents returns an error unless both watchers have had an event of each file, or have
// been told after it was created that events may have been lost; and none of another file.
func (s *fileSet) checkEvents() (told string, err error) {
	byRelease, err := s.seenByRelease()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for who, seen := range map[string][]seenEvent{"this version": s.seen, "the release": byRelease} {
		children, lookAgain := map[string]int{}, time.Time{}
		for _, e := range seen {
			switch e.Kind {
			case api.EventChildAdded.String():
				children[e.Child]++
			case api.EventMasterFailedOver.String(), api.EventLost.String():
				lookAgain = e.At
			default:
				return "", fmt.Errorf("the client of %s was told of %+v", who, e)
			}
		}
		for name, began := range s.files {
			if children[name] == 0 && !lookAgain.After(began) {
				return "", fmt.Errorf("the client of %s saw no event of %s, which was created at %v; it was told to look again at %v; its last events are %v, and stderr of the release's is %q", who, name, began, lookAgain, seen[max(0, len(seen)-10):], &s.release.stderr)
			}
		}
		for name, n := range children {
			if _, ok := s.files[name]; !ok || n > 1 {
				return "", fmt.Errorf("the client of %s saw %d events of %s, which was created: %v", who, n, name, ok)
			}
		}
		told += fmt.Sprintf("the client of %s had an event of %d of %d files, and is told of the rest by %d other events; ", who, len(children), len(s.files), len(seen)-len(children))
	}
	return told, nil
}

// checkFiles returns an error unless the directory holds the files that were created, with
// their contents, and no other.
func (s *fileSet) checkFiles(ctx context.Context, c *client.Client) error {
	list, err := s.handle.ReadDir(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(list) != len(s.files) {
		return fmt.Errorf("%d files were created, and %d are there", len(s.files), len(list))
	}
	for name := range s.files {
		h, err := c.Open(ctx, s.dir+"/"+name, client.OpenOptions{Read: true})
		if err != nil {
			return fmt.Errorf("a file that was created is lost: %w", err)
		}
		got, _, err := h.Contents(ctx)
		if err = errors.Join(err, h.Close(ctx)); err != nil {
			return err
		}
		if string(got) != contentsOf(name) {
			return fmt.Errorf("%s says %q", name, got)
		}
	}
	return nil
}

// replayLog stops the replica with the bbolt log, applies that log with the packages of both versions, and compares the
// snapshots that they write: below the level of this version they are the same to the byte. So each version can restore
// what the other has kept. What comes after is applied to the snapshot of the release.
//
// The replicas have taken no snapshots: the test is too short for that.
func (u *upgrade) replayLog() {
	u.t.Helper()
	s := u.waitStatus(u.checkApplied)
	u.endReplica(boltID, syscall.SIGTERM)
	delete(u.procs, boltID)
	entries := must(readLog(filepath.Join(u.dir, boltID, "log.db"), s.Replicas[0].Applied))(u.t)
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
	must(before.WriteTo(&mine))(u.t)
	released := u.replayByRelease(entries[:common])
	if !bytes.Equal(mine.Bytes(), released) {
		u.t.Fatalf("after %d entries, %s and this version write different snapshots, of %d and %d bytes", common, u.released.name, len(released), mine.Len())
	}
	restored := must(raftfsm.ReadState(bytes.NewReader(released), raftfsm.MaxLevel))(u.t)
	for _, e := range entries[common:] {
		if _, err := restored.ApplyData(e.Index, e.Term, e.Data, raftfsm.MaxLevel); err != nil {
			u.t.Fatalf("apply entry %d to a snapshot of %s: %v", e.Index, u.released.name, err)
		}
	}
	want := must(whole.Hash())(u.t)
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

package peer

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/raft"
)

// Raft's log lines about a peer have its id. A peer that does not answer for a while is
// logged with the cause, and a single election without a result is not.
func TestRaftLogNamesReplicas(t *testing.T) {
	count, now := &testbed.Lines{}, session.Instant(0)
	log := NewRaftLog(slog.New(slog.NewTextHandler(count, &slog.HandlerOptions{Level: slog.LevelDebug})), func() session.Instant { return now }, func(address string) (string, bool) {
		return strings.TrimSuffix(address, ":7431"), strings.HasSuffix(address, ":7431")
	})
	peer := func(id string) raft.Server {
		return raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":7431")}
	}
	log.Error("failed to make requestVote RPC", "target", peer("r2"), "error", "refused", "term", 7)
	log.Warn("Election timeout reached, restarting election")
	log.Warn("heartbeat timeout reached, starting election", "last-leader-addr", raft.ServerAddress(""), "last-leader-id", raft.ServerID(""))
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "level=DEBUG") {
		t.Errorf("while the others may be starting: %q", lines)
	}
	now = now.Add(awayAfter)
	log.Error("failed to make requestVote RPC", "target", peer("r2"), "error", "refused", "term", 7)
	if lines := count.Take(); len(lines) != 0 {
		t.Errorf("while the others may still be starting: %q", lines)
	}
	now = now.Add(time.Hour)
	log.Warn("Election timeout reached, restarting election")
	if lines := count.Take(); len(lines) != 0 {
		t.Errorf("an hour later nobody complains any more: %q", lines)
	}
	complain := func() {
		log.Error("failed to heartbeat to", "peer", raft.ServerAddress("r2:7431"), "backoff time", "1s", "error", "refused")
		log.Error("failed to appendEntries to", "peer", peer("r3"), "error", errors.New("msgpack decode error [pos 9]: i/o timeout"))
	}
	complain()
	now = now.Add(awayAfter)
	log.away.answered("r2", false)
	complain()
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "peers=[r3]") || !strings.Contains(lines[0], "i/o timeout (if this") || !strings.Contains(lines[0], "MTU") {
		t.Errorf("r2 was late, and r3 gets no entries: %q", lines)
	}
	log.away.answered("r3", false) // to a heartbeat, which is small
	now = now.Add(awayAfter)
	for range 100 {
		complain()
	}
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "peers=[r2]") || !strings.Contains(lines[0], "error=refused") {
		t.Errorf("another one: %q", lines)
	}
	for range 100 { // a replica that needs a snapshot
		log.Error("failed to get log", "index", 6, "error", raft.ErrLogNotFound)
		log.Error("failed to install snapshot", "peer", raft.ServerID("r3"), "id", "2-9508-1", "error", fmt.Errorf("connect: %w", api.Unavailable))
		log.Error("failed to send snapshot to", "peer", peer("r3"), "error", "refused")
	}
	log.Error("failed to install snapshot", "peer", raft.ServerID("r3"), "id", "2-9508-1", "error", errors.New("failed to restore"))
	lines := count.Take()
	if last := len(lines) - 1; !strings.Contains(lines[last], "level=ERROR") {
		t.Errorf("a snapshot that a replica cannot take: %s", lines[last])
	}
	for _, line := range lines[:len(lines)-1] {
		if !strings.Contains(line, "level=DEBUG") {
			t.Errorf("a replica that is away and needs a snapshot: %s", line)
		}
	}
	now = now.Add(awayLogEvery - 2*awayAfter)
	complain()
	log.away.answered("r3", true)
	log.Warn("failed to contact", "server-id", raft.ServerID("r4"), "time", time.Second)
	now = now.Add(awayAfter)
	log.Warn("failed to contact", "server-id", raft.ServerID("r4"), "time", 3*time.Second)
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], `peers="[r2 r4]" error="r2: refused; r4: it has not answered for 3s"`) {
		t.Errorf("after a minute, r3 is back: %q", lines)
	}
	now = now.Add(time.Hour)
	for range minFruitless {
		if lines := count.Take(); len(lines) != 0 {
			t.Errorf("after an election or two: %q", lines)
		}
		log.Warn("Election timeout reached, restarting election")
	}
	if lines := count.Take(); len(lines) != 1 || !strings.Contains(lines[0], "elect no master") {
		t.Errorf("after %d elections in vain: %q", minFruitless, lines)
	}
	log.Warn("heartbeat timeout reached, starting election", "last-leader-addr", raft.ServerAddress("r2:7431"), "last-leader-id", raft.ServerID("r2"))
	log.Error("failed to persist vote", "error", "it failed")
	lines = count.Take()
	if len(lines) != 2 || !strings.Contains(lines[0], "level=INFO") || strings.Contains(lines[0], "7431") || !strings.Contains(lines[1], `level=ERROR msg="failed to persist vote"`) {
		t.Errorf("logged %q", lines)
	}
}

// TestRaftLog: the libraries' log lines keep their attributes.
func TestRaftLog(t *testing.T) {
	count := &testbed.Lines{}
	log := NewStoreLog(slog.New(slog.NewTextHandler(count, &slog.HandlerOptions{Level: slog.LevelDebug}))).Named("raft").With("peer", "r2")
	log.Warn("failed to contact", "time", 7)
	log.Info("entering state")
	lines := count.Take()
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "library=raft peer=r2 time=7") || !strings.Contains(lines[1], "level=DEBUG") {
		t.Errorf("logged %q", lines)
	}
}

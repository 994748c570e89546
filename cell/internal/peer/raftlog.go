package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// NewStoreLog returns a logger for the stores that Raft uses, which writes to
// logger.
func NewStoreLog(logger *slog.Logger) hclog.Logger { return NewRaftLog(logger, nil, nil) }

// NewRaftLog returns a logger for hashicorp/raft and its transport that writes to
// logger, in words that an operator understands: peer names the replica that has
// a Raft address. The libraries log addresses, indexes, terms and file names;
// they never log the contents of entries.
func NewRaftLog(logger *slog.Logger, clock session.Clock, peer func(address string) (id string, ok bool)) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(&raftLogSink{logger: logger, clock: clock, peer: peer, away: map[string]bool{}, named: map[string]bool{}})
	return l
}

// raftLogSink receives what the libraries log. It is for any goroutine.
type raftLogSink struct {
	logger *slog.Logger
	clock  session.Clock
	peer   func(address string) (id string, ok bool)

	mu    sync.Mutex // guards the fields below; never held while something is logged
	began bool
	since session.Instant // when a peer was first found away
	last  session.Instant // when those away were told last
	away  map[string]bool // peers that were found away since then
	named map[string]bool // peers that were told of at that time or since
	vain  int             // elections without a result since then
}

const (
	raftLogPause = time.Minute      // between two lines about peers that are away
	raftLogGrace = 10 * time.Second // in which the others may be starting as well
	maxRaftPeers = 64               // that are remembered by name
	raftLogVain  = 5                // elections in vain that are worth a line; one may be a split vote
)

// raftSays is how one line of Raft's is told.
type raftSays struct {
	level slog.Level
	text  string // instead of Raft's; empty keeps that
}

// raftWords translates what Raft logs in the life of every cell. It calls a
// warning or an error what is neither, and an operator knows replicas by their
// ids. Lines that are not here keep their words.
func raftWords(msg string) raftSays {
	switch msg {
	case "failed to contact quorum of nodes, stepping down":
		return raftSays{slog.LevelWarn, "most replicas do not answer: the mastership is given up"}
	case "heartbeat timeout reached, starting election":
		return raftSays{slog.LevelInfo, "nothing is heard of the master: standing for election"}
	case "new leader elected, stepping down", "peer has newer term, stopping replication":
		return raftSays{slog.LevelInfo, "another replica is elected"}
	case "failed to get previous log", "previous log term mis-match":
		return raftSays{slog.LevelInfo, "this replica is behind the master, and is being brought up to date"}
	case "appendEntries rejected, sending older logs":
		return raftSays{slog.LevelInfo, "a replica is behind, and is being brought up to date"}
	case "failed to decode incoming command", // whenever a peer's connection ends
		"rejecting vote request since we have a leader", "rejecting pre-vote request since we have a leader",
		"rejecting vote request since our last index is greater", "rejecting pre-vote request since our last index is greater",
		"rejecting vote request since our last term is greater", "rejecting pre-vote request since our last term is greater",
		"duplicate requestVote from", "skipping application of old log",
		"failed to send snapshot to": // for a reason that was logged before
		return raftSays{level: slog.LevelDebug}
	}
	return raftSays{level: slog.LevelError}
}

// raftPeerAway reports whether Raft says with this that it cannot reach a peer.
func raftPeerAway(msg string) bool {
	switch msg {
	case "failed to make requestVote RPC", "failed to appendEntries to", "failed to heartbeat to", "failed to contact",
		"failed to pipeline appendEntries", "failed to start pipeline replication to":
		return true
	}
	return false
}

// Accept implements hclog.SinkAdapter.
func (s *raftLogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	attrs := make([]any, 0, len(args)+2)
	if name != "" {
		attrs = append(attrs, "library", name)
	}
	var about, why string
	var cause error
	for i, arg := range args {
		arg = s.translate(arg)
		attrs = append(attrs, arg)
		if i%2 == 0 {
			continue
		}
		switch args[i-1] {
		case "peer", "target", "server-id":
			about = fmt.Sprint(arg)
		case "error":
			why = fmt.Sprint(arg)
			cause, _ = arg.(error)
			if errors.Is(cause, raft.ErrLogNotFound) {
				level = hclog.Debug // a replica is so far behind that it gets a snapshot
			}
		case "last-leader-id":
			if arg == raft.ServerID("") {
				level = hclog.Debug // at a start nobody has been heard of
			}
		}
	}
	if s.clock != nil && level >= hclog.Warn {
		switch {
		case raftPeerAway(msg), msg == "failed to install snapshot" && errors.Is(cause, api.Unavailable):
			s.peerAway(about, why)
			return
		case msg == "Election timeout reached, restarting election":
			s.peerAway("", "")
			return
		}
	}
	says := raftWords(msg)
	switch {
	case level <= hclog.Info:
		// What Raft calls information is news for whoever debugs an election, not
		// for an operator.
		says.level = slog.LevelDebug
	case level == hclog.Warn:
		says.level = min(says.level, slog.LevelWarn)
	}
	s.logger.Log(context.Background(), says.level, cmp.Or(says.text, msg), attrs...)
}

// translate makes of a peer its id, and of a value that is formatted late its
// text.
func (s *raftLogSink) translate(arg any) any {
	switch arg := arg.(type) {
	case hclog.Format:
		if len(arg) > 0 {
			return fmt.Sprintf(fmt.Sprint(arg[0]), arg[1:]...)
		}
	case raft.Server:
		return string(arg.ID)
	case raft.ServerAddress:
		if s.peer != nil {
			if id, ok := s.peer(string(arg)); ok {
				return id
			}
		}
	}
	return arg
}

// peerAway notes that a peer cannot be reached, or ("") that an election has
// brought no master. Raft says so many times a second, for as long as it lasts:
// the log names a peer at once if it has not lately, and once a minute all that
// were found away since.
func (s *raftLogSink) peerAway(id, why string) {
	if list, ok := s.toTell(id); ok && len(list) > 0 {
		s.logger.Warn("replicas cannot be reached", "replicas", list, "error", why)
	} else if ok {
		s.logger.Warn("the replicas that can be reached elect no master")
	}
}

// toTell returns the peers that the log is to name now, if it is to say anything.
func (s *raftLogSink) toTell(id string) (list []string, ok bool) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began {
		s.began, s.since = true, now
		s.last = now.Add(raftLogGrace - raftLogPause)
	}
	if id == "" {
		s.vain++
	} else if len(s.away) < maxRaftPeers {
		s.away[id] = true
	}
	switch {
	case now.Sub(s.since) < raftLogGrace:
		return nil, false
	case now.Sub(s.last) >= raftLogPause && (len(s.away) > 0 || s.vain >= raftLogVain):
		for peer := range s.away {
			list = append(list, peer)
		}
		slices.Sort(list)
		s.last, s.named, s.away, s.vain = now, s.away, map[string]bool{}, 0
		return list, true
	case id != "" && !s.named[id] && len(s.named) < maxRaftPeers:
		s.named[id] = true
		return []string{id}, true
	}
	return nil, false
}

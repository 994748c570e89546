package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/session"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// NewStoreLog returns a logger for Raft's stores that writes to logger.
func NewStoreLog(logger *slog.Logger) hclog.Logger { return NewRaftLog(logger, nil, nil) }

// RaftLog is a logger for hashicorp/raft and its transport.
type RaftLog struct {
	hclog.InterceptLogger
	away *awayPeers
}

// NewRaftLog returns a logger for hashicorp/raft and its transport. It writes to logger, in an operator's
// words; memberAt returns the ID for a Raft address. The libraries never log entries' contents.
func NewRaftLog(logger *slog.Logger, clock session.Clock, memberAt func(address string) (id string, ok bool)) *RaftLog {
	away := newAwayPeers(logger, clock)
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(&raftLogSink{
		logger:   logger,
		memberAt: memberAt,
		away:     away,
	})
	return &RaftLog{l, away}
}

// raftLogSink receives the libraries' lines. It is safe for concurrent use.
type raftLogSink struct {
	logger   *slog.Logger
	memberAt func(address string) (id string, ok bool)
	away     *awayPeers
}

// raftLine says how to log one of Raft's lines.
type raftLine struct {
	level slog.Level
	text  string // replaces Raft's text, unless empty
}

// rewordRaftLine translates common lines of Raft. Some of its warnings and errors are neither, and operators
// know replicas by their IDs. Other lines keep their words.
func rewordRaftLine(msg string) raftLine {
	switch msg {
	case "failed to contact quorum of nodes, stepping down":
		return raftLine{slog.LevelWarn, "most replicas do not answer: the mastership is given up"}
	case "heartbeat timeout reached, starting election":
		return raftLine{slog.LevelInfo, "nothing is heard of the master: standing for election"}
	case "new leader elected, stepping down", "peer has newer term, stopping replication":
		return raftLine{slog.LevelInfo, "another replica is elected"}
	case "failed to get previous log", "previous log term mis-match":
		return raftLine{slog.LevelInfo, "this replica is behind the master, and is being brought up to date"}
	case "appendEntries rejected, sending older logs":
		return raftLine{slog.LevelInfo, "a replica is behind, and is being brought up to date"}
	case "failed to decode incoming command", // at the end of every connection of a peer
		"rejecting vote request since we have a leader", "rejecting pre-vote request since we have a leader",
		"rejecting vote request since our last index is greater", "rejecting pre-vote request since our last index is greater",
		"rejecting vote request since our last term is greater", "rejecting pre-vote request since our last term is greater",
		"duplicate requestVote from", "skipping application of old log",
		"failed to send snapshot to": // the reason was already logged
		return raftLine{level: slog.LevelDebug}
	}
	return raftLine{level: slog.LevelError}
}

// isPeerAway reports whether this line of Raft says that it cannot reach a peer.
func isPeerAway(msg string) bool {
	switch msg {
	case "failed to make requestVote RPC", "failed to appendEntries to", "failed to heartbeat to", "failed to contact",
		"failed to pipeline appendEntries", "failed to start pipeline replication to":
		return true
	}
	return false
}

func (s *raftLogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	says, attrs := rewordRaftLine(msg), make([]any, 0, len(args)+2)
	if name != "" || says.text == "" {
		attrs = append(attrs, "library", cmp.Or(name, "raft"))
	}
	var about string
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
		case "time": // of "failed to contact"
			cause = fmt.Errorf("it has not answered for %v", arg)
		case "error":
			if cause, _ = arg.(error); cause == nil {
				cause = fmt.Errorf("%v", arg)
			}
			if errors.Is(cause, raft.ErrLogNotFound) {
				level = hclog.Debug // a replica is so far behind that it gets a snapshot
			}
		case "last-leader-id":
			if arg == raft.ServerID("") {
				level = hclog.Debug // no master is known at the start
			}
		}
	}
	if s.away.clock != nil && level >= hclog.Warn {
		switch {
		case isPeerAway(msg), msg == "failed to install snapshot" && errors.Is(cause, api.Unavailable):
			s.away.note(about, cause, isAboutEntries(msg))
			return
		case msg == "Election timeout reached, restarting election":
			s.away.noteFruitless()
			return
		}
	}
	switch {
	case level <= hclog.Info:
		// Raft's information helps to debug an election, and tells an operator nothing.
		says.level = slog.LevelDebug
	case level == hclog.Warn:
		says.level = min(says.level, slog.LevelWarn)
	}
	s.logger.Log(context.Background(), says.level, cmp.Or(says.text, msg), attrs...)
}

// translate turns a peer into its ID, and a lazily formatted value into text.
func (s *raftLogSink) translate(arg any) any {
	switch arg := arg.(type) {
	case hclog.Format:
		if len(arg) > 0 {
			return fmt.Sprintf(fmt.Sprint(arg[0]), arg[1:]...)
		}
	case raft.Server:
		return string(arg.ID)
	case raft.ServerAddress:
		if s.memberAt != nil {
			if id, ok := s.memberAt(string(arg)); ok {
				return id
			}
		}
	}
	return arg
}

// isAboutEntries reports whether this line of Raft says that entries or a snapshot do not reach a peer.
func isAboutEntries(msg string) bool {
	switch msg {
	case "failed to appendEntries to", "failed to pipeline appendEntries", "failed to start pipeline replication to", "failed to install snapshot":
		return true
	}
	return false
}

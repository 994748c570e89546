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

// NewStoreLog returns a logger for the stores of Raft, which writes to logger.
func NewStoreLog(logger *slog.Logger) hclog.Logger { return NewRaftLog(logger, nil, nil) }

// NewRaftLog returns a logger for hashicorp/raft and its transport. It writes to logger,
// in words that an operator understands; memberAt returns the ID of the replica that has
// a Raft address. The libraries log addresses, indexes, terms and file names; they never
// log the contents of entries.
func NewRaftLog(logger *slog.Logger, clock session.Clock, memberAt func(address string) (id string, ok bool)) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	l.RegisterSink(&raftLogSink{
		logger:   logger,
		clock:    clock,
		memberAt: memberAt,
		away:     map[string]bool{},
		named:    map[string]bool{},
	})
	return l
}

// raftLogSink receives what the libraries log. It is for any goroutine.
type raftLogSink struct {
	logger   *slog.Logger
	clock    session.Clock
	memberAt func(address string) (id string, ok bool)

	mu        sync.Mutex // guards the fields below; never held while something is logged
	began     bool
	since     session.Instant // when a peer was away for the first time
	last      session.Instant // when the peers that are away were logged last
	away      map[string]bool // peers that were away since then
	named     map[string]bool // peers that were logged then or since
	fruitless int             // elections without a result since then
}

const (
	awayLogEvery = time.Minute      // between two lines about peers that are away
	awayLogGrace = 10 * time.Second // after the start, while the others may be starting, too
	maxAwayPeers = 64               // are remembered by name
	minFruitless = 5                // elections without a result that are logged; a single one may be a split vote
)

// raftLine says how one line of Raft is logged.
type raftLine struct {
	level slog.Level
	text  string // instead of Raft's; if empty, Raft's
}

// rewordRaftLine translates what Raft logs in the life of every cell. Raft calls things
// warnings or errors that are neither, and an operator knows replicas by their IDs.
// Lines that are not in it keep their words.
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
	case "failed to decode incoming command", // whenever a peer's connection ends
		"rejecting vote request since we have a leader", "rejecting pre-vote request since we have a leader",
		"rejecting vote request since our last index is greater", "rejecting pre-vote request since our last index is greater",
		"rejecting vote request since our last term is greater", "rejecting pre-vote request since our last term is greater",
		"duplicate requestVote from", "skipping application of old log",
		"failed to send snapshot to": // the reason was logged before
		return raftLine{level: slog.LevelDebug}
	}
	return raftLine{level: slog.LevelError}
}

// isPeerAway reports whether Raft says with this line that it cannot reach a peer.
func isPeerAway(msg string) bool {
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
				level = hclog.Debug // at the start no master is known
			}
		}
	}
	if s.clock != nil && level >= hclog.Warn {
		switch {
		case isPeerAway(msg), msg == "failed to install snapshot" && errors.Is(cause, api.Unavailable):
			s.notePeerAway(about, why)
			return
		case msg == "Election timeout reached, restarting election":
			s.notePeerAway("", "")
			return
		}
	}
	says := rewordRaftLine(msg)
	switch {
	case level <= hclog.Info:
		// What Raft calls information helps to debug an election, and tells an
		// operator nothing.
		says.level = slog.LevelDebug
	case level == hclog.Warn:
		says.level = min(says.level, slog.LevelWarn)
	}
	s.logger.Log(context.Background(), says.level, cmp.Or(says.text, msg), attrs...)
}

// translate turns a peer into its ID, and a value that is formatted late into its text.
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

// notePeerAway notes that a peer cannot be reached, or, with "", that an election has
// brought no master. Raft says so many times a second, as long as it lasts. The log
// names a peer at once if it has not done so recently, and once a minute all peers that
// were away since.
func (s *raftLogSink) notePeerAway(id, why string) {
	if list, ok := s.duePeers(id); ok && len(list) > 0 {
		s.logger.Warn("replicas cannot be reached", "event", "peers_away", "peers", list, "error", why)
	} else if ok {
		s.logger.Warn("the replicas that can be reached elect no master", "event", "no_master")
	}
}

// duePeers returns the peers that the log must name now; ok is false if there is nothing
// to log.
func (s *raftLogSink) duePeers(id string) (list []string, ok bool) {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began {
		s.began, s.since = true, now
		s.last = now.Add(awayLogGrace - awayLogEvery)
	}
	if id == "" {
		s.fruitless++
	} else if len(s.away) < maxAwayPeers {
		s.away[id] = true
	}
	switch {
	case now.Sub(s.since) < awayLogGrace:
		return nil, false
	case now.Sub(s.last) >= awayLogEvery && (len(s.away) > 0 || s.fruitless >= minFruitless):
		for peer := range s.away {
			list = append(list, peer)
		}
		slices.Sort(list)
		s.last, s.named, s.away, s.fruitless = now, s.away, map[string]bool{}, 0
		return list, true
	case id != "" && !s.named[id] && len(s.named) < maxAwayPeers:
		s.named[id] = true
		return []string{id}, true
	}
	return nil, false
}

package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

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
	level   slog.Level
	text    string // replaces Raft's text, unless empty
	away    bool   // it says that a peer cannot be reached
	entries bool   // it says that entries or a snapshot do not reach a peer
}

// rewordRaftLine translates common lines of Raft. Some of its warnings and errors are neither, and operators
// know replicas by their IDs. Other lines keep their words.
func rewordRaftLine(msg string) raftLine {
	switch msg {
	case "failed to contact quorum of nodes, stepping down":
		return raftLine{level: slog.LevelWarn, text: "most replicas do not answer: the mastership is given up"}
	case "heartbeat timeout reached, starting election":
		return raftLine{level: slog.LevelInfo, text: "nothing is heard of the master: standing for election"}
	case "new leader elected, stepping down", "peer has newer term, stopping replication":
		return raftLine{level: slog.LevelInfo, text: "another replica is elected"}
	case "failed to get previous log", "previous log term mis-match":
		return raftLine{level: slog.LevelInfo, text: "this replica is behind the master, and is being brought up to date"}
	case "appendEntries rejected, sending older logs":
		return raftLine{level: slog.LevelInfo, text: "a replica is behind, and is being brought up to date"}
	case "failed to decode incoming command", // at the end of every connection of a peer
		"rejecting vote request since we have a leader", "rejecting pre-vote request since we have a leader",
		"rejecting vote request since our last index is greater", "rejecting pre-vote request since our last index is greater",
		"rejecting vote request since our last term is greater", "rejecting pre-vote request since our last term is greater",
		"duplicate requestVote from", "skipping application of old log",
		"failed to send snapshot to": // the reason was already logged
		return raftLine{level: slog.LevelDebug}
	case "failed to make requestVote RPC", "failed to heartbeat to", "failed to contact":
		return raftLine{level: slog.LevelError, away: true}
	case "failed to appendEntries to", "failed to pipeline appendEntries", "failed to start pipeline replication to":
		return raftLine{level: slog.LevelError, away: true, entries: true}
	case "failed to install snapshot":
		return raftLine{level: slog.LevelError, entries: true}
	}
	return raftLine{level: slog.LevelError}
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
		case says.away, says.entries && errors.Is(cause, api.Unavailable): // to install a snapshot may fail otherwise
			s.away.note(about, cause, says.entries)
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

const (
	awayLogEvery = time.Minute      // between two lines with all peers that are away
	awayLogGrace = 10 * time.Second // after the start, while others may be starting
	awayAfter    = 2 * time.Second  // a peer without an answer for so long is away
	maxAwayPeers = 64               // remembered by name
	minFruitless = 5                // fruitless elections before a line; a single one may be a split vote
	maxCause     = 300              // bytes of the reason
)

// awayPeers logs which peers cannot be reached, and why. Raft complains many times a second, even if an answer
// is only late. So a peer is away once it has not answered for awayAfter since Raft's first complaint. The log
// names it then, and all that are away once a minute. It is safe for concurrent use.
type awayPeers struct {
	logger *slog.Logger
	clock  session.Clock

	mu        sync.Mutex // guards the fields below; not held while logging
	began     bool
	since     session.Instant // Raft's first complaint
	last      session.Instant // the last such line
	peers     map[string]*awayPeer
	named     map[string]bool // peers logged then or since
	fruitless int             // elections without a result since then
}

// awayPeer is a peer that has not answered since Raft complained of it.
type awayPeer struct {
	since, last session.Instant // the first and the latest complaint
	entries     bool            // concerns entries: an answer to a heartbeat does not end it
	why         string          // the latest reason
}

func newAwayPeers(logger *slog.Logger, clock session.Clock) *awayPeers {
	return &awayPeers{logger: logger, clock: clock, peers: map[string]*awayPeer{}, named: map[string]bool{}}
}

func (a *awayPeers) note(id string, why error, entries bool) {
	now := a.clock()
	a.mu.Lock()
	p := a.peers[id]
	if p == nil && len(a.peers) < maxAwayPeers {
		p = &awayPeer{since: now}
		a.peers[id] = p
	}
	if p != nil {
		p.last, p.entries = now, p.entries || entries
		if why != nil {
			p.why = explainAway(why, entries)
		}
	}
	a.mu.Unlock()
	a.log(now)
}

// explainAway returns why a peer is away. If only entries time out, the path may drop large packets.
func explainAway(why error, entries bool) string {
	text := why.Error()
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "..."
	}
	if entries && (errors.Is(why, os.ErrDeadlineExceeded) || strings.Contains(text, "timeout")) {
		text += " (if this replica and that one reach each other otherwise, their path may drop large packets: look at its MTU)"
	}
	return text
}

func (a *awayPeers) noteFruitless() {
	now := a.clock()
	a.mu.Lock()
	a.fruitless++
	a.mu.Unlock()
	a.log(now)
}

// answered records that a peer has answered, to a message with or without entries.
func (a *awayPeers) answered(id string, entries bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[id]; p != nil && (entries || !p.entries) {
		delete(a.peers, id)
	}
}

func (a *awayPeers) unanswering() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.peers))
}

func (a *awayPeers) log(now session.Instant) {
	if list, why, due := a.due(now); due && len(list) > 0 {
		a.logger.Warn("replicas cannot be reached", "event", "peers_away", "peers", list, "error", why)
	} else if due {
		a.logger.Warn("the replicas that can be reached elect no master", "event", "no_master")
	}
}

func (a *awayPeers) due(now session.Instant) (list []string, why string, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.began {
		a.began, a.since = true, now
		a.last = now.Add(awayLogGrace - awayLogEvery)
	}
	if now.Sub(a.since) < awayLogGrace {
		return nil, "", false
	}
	for _, id := range slices.Sorted(maps.Keys(a.peers)) {
		switch p := a.peers[id]; {
		case now.Sub(p.last) > awayLogEvery: // Raft no longer complains: it is back, or no longer a member
			delete(a.peers, id)
		case now.Sub(p.since) >= awayAfter:
			list = append(list, id)
		}
	}
	switch unnamed := slices.DeleteFunc(slices.Clone(list), func(id string) bool { return a.named[id] }); {
	case now.Sub(a.last) >= awayLogEvery && (len(list) > 0 || a.fruitless >= minFruitless):
		a.last, a.fruitless, a.named = now, 0, map[string]bool{}
	case len(unnamed) > 0:
		list = unnamed
	default:
		return nil, "", false
	}
	for _, id := range list {
		a.named[id] = true
	}
	return list, a.causes(list), true
}

// causes returns why peers are away, once if all have the same reason.
func (a *awayPeers) causes(list []string) string {
	var parts, all []string
	for _, id := range list {
		why := cmp.Or(a.peers[id].why, "it does not answer")
		parts, all = append(parts, id+": "+why), append(all, why)
	}
	if slices.Sort(all); len(slices.Compact(all)) == 1 {
		return all[0]
	}
	return strings.Join(parts, "; ")
}

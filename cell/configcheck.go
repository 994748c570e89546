package cell

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/disk"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/internal/bootclock"
	"github.com/chubbylock/chubby/raftfsm"
	"github.com/chubbylock/chubby/session"
)

// complete sets the defaults and reports all faults at once, as InvalidArgument.
func (cfg Config) complete() (Config, error) {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	cfg.LogStore = cmp.Or(cfg.LogStore, DefaultLogStore)
	cfg.supports = cmp.Or(cfg.supports, raftfsm.MaxLevel)
	cfg.ElectionTimeout = cmp.Or(cfg.ElectionTimeout, DefaultElectionTimeout)
	cfg.DiskStall = cmp.Or(cfg.DiskStall, DefaultDiskStall)
	if cfg.Clock == nil {
		cfg.Clock = func() session.Instant { return session.Instant(bootclock.Now()) }
	}
	if cfg.Wall == nil {
		cfg.Wall = wallClock
	}
	cfg.ReplaceAfter = cmp.Or(cfg.ReplaceAfter, DefaultReplaceAfter)
	cfg.KeepAlives = cmp.Or(cfg.KeepAlives, DefaultKeepAlives)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, DefaultMaxConnections)
	cfg.MaxConnectionsPerAddress = cmp.Or(cfg.MaxConnectionsPerAddress, DefaultMaxConnectionsPerAddress)
	cfg.ClientMemoryMiB = cmp.Or(cfg.ClientMemoryMiB, DefaultClientMemoryMiB)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if cfg.Dial == nil {
		cfg.Dial = func(address string, timeout time.Duration) (net.Conn, error) {
			return net.DialTimeout("tcp", address, timeout)
		}
	}
	if !api.ValidCell(cfg.Cell) {
		fault("cell: %q is no cell's name: want letters, digits, '-', '_' and '.'", cfg.Cell)
	}
	if cfg.Data == "" {
		fault("data: no directory is given")
	}
	if !slices.Contains(LogStores(), cfg.LogStore) {
		fault("log-store: %q is none of %s", cfg.LogStore, disk.LogStoreNames(" and "))
	}
	//mutant: if cfg.ElectionTimeout < MinElectionTimeout { //by TestElectionTimeoutIsBelowEveryLease of ./cell
	if cfg.ElectionTimeout < MinElectionTimeout || cfg.ElectionTimeout > MaxElectionTimeout {
		fault("election-timeout: %v is outside %v to %v (less than the shortest lease)", cfg.ElectionTimeout, MinElectionTimeout, MaxElectionTimeout)
	}
	cfg.ElectionTimeout = cmp.Or(cfg.beliefs, cfg.ElectionTimeout)
	cfg.checkDiskStall(fault)
	if cfg.SlowClient != 0 && cfg.SlowClient < minSlow {
		fault("slow-client: %v is too short: want at least %v, or 0 for no bound", cfg.SlowClient, minSlow)
	}
	if !(cfg.KeepAlives > 0) { // NaN fails, too
		fault("keepalives: %v a second; want a positive number", cfg.KeepAlives)
	}
	if len(cfg.Operators) > MaxOperators {
		fault("operators: %d principals; at most %d are possible", len(cfg.Operators), MaxOperators)
	}
	for _, principal := range cfg.Operators {
		if err := wire.CheckPrincipal(principal); err != nil && principal != "*" {
			fault("operators: %v", err)
		}
	}
	cfg.checkTLS(fault)
	cfg.checkTokens(fault)
	cfg.checkAudit(fault)
	cfg.checkBounds(fault)
	cfg.checkMetricPrefixes(fault)
	cfg.checkConsole(fault)
	if cfg.ReplaceAfter < MinReplaceAfter {
		fault("replace-after: %v; want %v or longer", cfg.ReplaceAfter, MinReplaceAfter)
	}
	if wrong := cfg.Backups.check(); wrong != "" {
		fault("%s", wrong)
	}
	if (cfg.Join || cfg.Spare) && cfg.Bootstrap {
		fault("join, spare, bootstrap: both are set; a replica either begins a cell or joins one")
	}
	if _, ok := cfg.self(); !ok {
		fault("id: %q is not among the members", cfg.ID)
	}
	cfg.checkMembers(fault)
	cfg.checkListen(fault)
	for _, a := range []struct{ what, address string }{
		{"listen: the client address", cfg.Listen.Client}, {"listen: the raft address", cfg.Listen.Raft},
		{"listen: the http address", cfg.Listen.HTTP}, {"advertise: the client address", cfg.Advertise},
	} {
		host, _, err := net.SplitHostPort(a.address)
		if a.address != "" && err != nil {
			fault("%s, %q, is not host:port", a.what, a.address)
		}
		if a.address != "" && a.address == cfg.Advertise && host == "" && err == nil {
			fault("%s, %q, names no host", a.what, a.address)
		}
		if len(a.address) > peer.MaxText {
			fault("%s has %d bytes, and at most %d can be told to others", a.what, len(a.address), peer.MaxText)
		}
	}
	if len(faults) > 0 {
		return cfg, api.Errorf(api.InvalidArgument, "the replica's configuration has %d faults:\n  %s", len(faults), strings.Join(faults, "\n  "))
	}
	return cfg, nil
}

// Check reports all faults of the configuration at once, as InvalidArgument.
func (cfg Config) Check() error {
	_, err := cfg.complete()
	return err
}

func (cfg Config) checkMembers(fault func(string, ...any)) {
	seen := map[string]string{}
	once := func(what, value, of string) {
		if was, ok := seen[what+value]; ok {
			fault("members: %s and %s have the same %s, %s", was, of, what, value)
		}
		seen[what+value] = of
	}
	for _, m := range cfg.Members {
		if len(m.ID) > 64 || !api.ValidCell(m.ID) { // the roster could not hold it, and no member could be changed
			fault("members: %q is no replica's id: want 1 to 64 letters, digits, '-', '_' and '.'", m.ID)
		}
		once("id", m.ID, m.ID)
		for what, address := range map[string]string{"client address": m.Client, "raft address": m.Raft, "http address": m.HTTP} {
			if address == "" && what == "http address" {
				continue
			}
			if host, _, err := net.SplitHostPort(address); err != nil || host == "" {
				fault("members: the %s of %s, %q, is not host:port", what, m.ID, address)
				continue
			}
			if len(address) > peer.MaxText {
				fault("members: the %s of %s has %d bytes, and at most %d can be told to others", what, m.ID, len(address), peer.MaxText)
			}
			once("address", address, m.ID)
		}
	}
}

// minSlow leaves a healthy client time to hear and answer.
const minSlow = time.Second

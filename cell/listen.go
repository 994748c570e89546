package cell

import (
	"cmp"
	"context"
	"math"
	"net"
	"path/filepath"
	"strings"

	"github.com/chubbylock/chubby/api"
	"golang.org/x/sys/unix"
)

// listenOn returns where to listen for an advertised address: an IP address itself, but every interface for a
// name other than localhost. Names are for the others to resolve: here one may mean the loopback interface
// (Debian and Ubuntu map the host's own name to 127.0.1.1 in /etc/hosts), or a router that forwards the port.
func listenOn(advertised string) string {
	host, port, err := net.SplitHostPort(advertised)
	if err != nil || host == "localhost" || net.ParseIP(host) != nil {
		return advertised
	}
	return net.JoinHostPort("", port)
}

func (cfg Config) listenAddresses() Addresses {
	self, _ := cfg.self()
	return Addresses{
		Client: cmp.Or(cfg.Listen.Client, listenOn(self.Client)),
		Raft:   cmp.Or(cfg.Listen.Raft, listenOn(self.Raft)),
		HTTP:   cmp.Or(cfg.Listen.HTTP, listenOn(self.HTTP)),
	}
}

func (r *member) listen(ctx context.Context) error {
	where := r.cfg.listenAddresses()
	for _, port := range []struct {
		listener *net.Listener
		address  string
	}{{&r.cfg.ClientListener, where.Client}, {&r.cfg.RaftListener, where.Raft}, {&r.cfg.HTTPListener, where.HTTP}} {
		if *port.listener != nil || port.address == "" {
			continue
		}
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", port.address)
		if err != nil {
			return &api.Error{Code: api.Unavailable, Op: "listen on " + port.address, Err: err,
				Message: "the address cannot be listened on: another process uses the port, or the address is not one of this machine; " +
					"stop that process, or say where to listen (listen) if others reach this replica through NAT or a mapped port"}
		}
		*port.listener = l
	}
	return nil
}

func (r *member) listening() string {
	var list []string
	for _, l := range []net.Listener{r.cfg.ClientListener, r.cfg.RaftListener, r.cfg.HTTPListener} {
		if l != nil {
			list = append(list, l.Addr().String())
		}
	}
	return strings.Join(list, " ")
}

// logStart logs in one line what has started, for readers who do not know the machine.
func (r *member) logStart() {
	self, _ := r.cfg.self()
	data, err := filepath.Abs(r.cfg.Data)
	if err != nil {
		data = r.cfg.Data
	}
	entries := uint64(0)
	if first := r.stores.First(); first > 0 {
		entries = r.raft.LastIndex() - first + 1
	}
	r.log.Info("started", "event", "replica_started", "version", Version(), "cell", r.cfg.Cell, "data", data, "log_store", r.cfg.LogStore,
		"listens", r.listening(), "advertises", strings.TrimSpace(strings.Join([]string{r.advertised(), self.Raft, self.HTTP}, " ")),
		"entries", entries, "index", r.raft.LastIndex(), "term", r.raft.CurrentTerm(), "members", len(r.servers()))
}

// ownDescriptors is how many file descriptors the replica reserves: for files, the raft port (maxPortConns),
// the http port (maxHTTPConns), and refused connections. Without one it cannot begin a log segment or a
// snapshot, and ends.
const ownDescriptors = 768

// descriptorLimit returns how many files this process may open. Go's runtime has raised that to the system's
// maximum.
func descriptorLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64 // unknown: refuse nothing for it
	}
	return uint64(limit.Cur) //nolint:unconvert // of another type on other systems
}

// affordableConnections returns how many client connections the limit of file descriptors allows, at least a
// quarter of that limit.
func affordableConnections(wanted int, limit uint64) int {
	left := limit / 4
	if limit > ownDescriptors {
		left = max(left, limit-ownDescriptors)
	}
	return int(max(1, min(uint64(wanted), left)))
}

package cell

import (
	"cmp"
	"context"
	"net"
	"path/filepath"
	"strings"

	"github.com/chubbylock/chubby/api"
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

func (cfg Config) checkListen(fault func(string, ...any)) {
	type port struct {
		what, address string
		given         net.Listener
	}
	where := cfg.listenAddresses()
	ports := []port{{"clients", where.Client, cfg.ClientListener}, {"raft", where.Raft, cfg.RaftListener}, {"http", where.HTTP, cfg.HTTPListener}}
	for i, one := range ports {
		for _, other := range ports[:i] {
			if one.given == nil && other.given == nil && overlap(one.address, other.address) {
				fault("listen: %s (for %s) and %s (for %s) are the same port here: give each its own, or say where to listen (listen)", other.address, other.what, one.address, one.what)
			}
		}
	}
}

// overlap reports whether two addresses cannot both be listened on; a name means every interface. Port 0 is
// always free.
func overlap(a, b string) bool {
	hostA, portA, err := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if err != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	every := func(host string) bool { return host == "" || net.ParseIP(host).IsUnspecified() }
	return hostA == hostB || every(hostA) || every(hostB)
}

func (r *Replica) listen(ctx context.Context) error {
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

func (r *Replica) listening() string {
	var list []string
	for _, l := range []net.Listener{r.cfg.ClientListener, r.cfg.RaftListener, r.cfg.HTTPListener} {
		if l != nil {
			list = append(list, l.Addr().String())
		}
	}
	return strings.Join(list, " ")
}

// advertised returns the client address that this replica reports to others and to clients.
func (r *Replica) advertised() string {
	self, _ := r.cfg.self()
	return cmp.Or(r.cfg.Advertise, self.Client)
}

// logStart logs in one line what has started, for readers who do not know the machine.
func (r *Replica) logStart() {
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

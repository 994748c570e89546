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

// faults are what is wrong with a configuration. Each names its keys.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f *faults) addIf(wrong bool, format string, args ...any) {
	if wrong {
		f.add(format, args...)
	}
}

// Check reports all faults of the configuration at once, as InvalidArgument.
func (cfg Config) Check() error {
	_, err := cfg.complete()
	return err
}

// complete sets the defaults, and is Check.
func (cfg Config) complete() (Config, error) {
	cfg.setDefaults()
	var f faults
	cfg.checkValues(&f)
	cfg.checkLimits(&f)
	cfg.checkTLS(&f)
	cfg.checkMetricPrefixes(&f)
	cfg.checkMembers(&f)
	cfg.checkAddresses(&f)
	cfg.ElectionTimeout = cmp.Or(cfg.beliefs, cfg.ElectionTimeout)
	if len(f) > 0 {
		return cfg, api.Errorf(api.InvalidArgument, "the replica's configuration has %d faults:\n  %s", len(f), strings.Join(f, "\n  "))
	}
	return cfg, nil
}

func (cfg *Config) setDefaults() {
	cfg.LogStore = cmp.Or(cfg.LogStore, DefaultLogStore)
	cfg.supports = cmp.Or(cfg.supports, raftfsm.MaxLevel)
	cfg.ElectionTimeout = cmp.Or(cfg.ElectionTimeout, DefaultElectionTimeout)
	cfg.DiskStall = cmp.Or(cfg.DiskStall, DefaultDiskStall)
	cfg.ReplaceAfter = cmp.Or(cfg.ReplaceAfter, DefaultReplaceAfter)
	cfg.KeepAlives = cmp.Or(cfg.KeepAlives, DefaultKeepAlives)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, DefaultMaxConnections)
	cfg.MaxConnectionsPerAddress = cmp.Or(cfg.MaxConnectionsPerAddress, DefaultMaxConnectionsPerAddress)
	cfg.ClientMemoryMiB = cmp.Or(cfg.ClientMemoryMiB, DefaultClientMemoryMiB)
	cfg.Audit.MiB = cmp.Or(cfg.Audit.MiB, DefaultAuditMiB)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if cfg.Clock == nil {
		cfg.Clock = func() session.Instant { return session.Instant(bootclock.Now()) }
	}
	if cfg.Wall == nil {
		cfg.Wall = wallClock
	}
	if cfg.Dial == nil {
		cfg.Dial = func(address string, timeout time.Duration) (net.Conn, error) {
			return net.DialTimeout("tcp", address, timeout)
		}
	}
}

func (cfg Config) checkValues(f *faults) {
	f.addIf(!api.ValidCell(cfg.Cell), "cell: %q is no cell's name: want letters, digits, '-', '_' and '.'", cfg.Cell)
	f.addIf(cfg.Data == "", "data: no directory is given")
	f.addIf(!slices.Contains(LogStores(), cfg.LogStore), "log-store: %q is none of %s", cfg.LogStore, disk.LogStoreNames(" and "))
	for _, principal := range cfg.Operators {
		err := wire.CheckPrincipal(principal)
		f.addIf(err != nil && principal != "*", "operators: %v", err)
	}
	f.addIf((cfg.Join || cfg.Spare) && cfg.Bootstrap, "join, spare, bootstrap: both are set; a replica either begins a cell or joins one")
	_, ok := cfg.self()
	f.addIf(!ok, "id: %q is not among the members", cfg.ID)
	if where := cfg.listenAddresses().HTTP; cfg.Console && cfg.HTTPListener == nil {
		f.addIf(where == "", "console: this replica has no http port, where the console would be")
		f.addIf(where != "" && cfg.ClientTLS == (TLSFiles{}) && !onLoopback(where),
			"console: without certificates it is for this machine alone, and the http port listens on %s: let it listen on 127.0.0.1 (listen), or give the cell certificates", where)
	}
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// minSlow leaves a healthy client time to hear and answer.
const minSlow = time.Second

func (cfg Config) checkLimits(f *faults) {
	//mutant: f.addIf(cfg.ElectionTimeout < MinElectionTimeout, //by TestElectionTimeoutIsBelowEveryLease of ./cell
	f.addIf(cfg.ElectionTimeout < MinElectionTimeout || cfg.ElectionTimeout > MaxElectionTimeout,
		"election-timeout: %v is outside %v to %v (less than the shortest lease)", cfg.ElectionTimeout, MinElectionTimeout, MaxElectionTimeout)
	f.addIf(cfg.DiskStall < MinDiskStall || cfg.DiskStall > MaxDiskStall, "disk-stall: %v is outside %v to %v", cfg.DiskStall, MinDiskStall, MaxDiskStall)
	f.addIf(cfg.SlowClient != 0 && cfg.SlowClient < minSlow, "slow-client: %v is too short: want at least %v, or 0 for no bound", cfg.SlowClient, minSlow)
	f.addIf(!(cfg.KeepAlives > 0), "keepalives: %v a second; want a positive number", cfg.KeepAlives) // NaN fails, too
	f.addIf(cfg.ReplaceAfter < MinReplaceAfter, "replace-after: %v; want %v or longer", cfg.ReplaceAfter, MinReplaceAfter)
	f.addIf(len(cfg.Operators) > MaxOperators, "operators: %d principals; at most %d are possible", len(cfg.Operators), MaxOperators)
	a, b := cfg.Audit, cfg.Backups
	f.addIf(a.MiB < 0 || a.MiB > MaxAuditMiB || a.Files < 0 || a.Files > MaxAuditFiles,
		"audit-file-mib, audit-files: %d and %d; want up to %d and %d", a.MiB, a.Files, MaxAuditMiB, MaxAuditFiles)
	if b.Place != nil {
		f.addIf(b.Every < MinBackupEvery || b.Every > MaxBackupEvery, "backup-every: %v; want %v to %v", b.Every, MinBackupEvery, MaxBackupEvery)
		f.addIf(b.Keep < 1 || b.Keep > MaxBackupKeep, "backup-keep: %d; want 1 to %d", b.Keep, MaxBackupKeep)
	}
	f.addIf(cfg.MaxConnections < 0 || cfg.MaxConnectionsPerAddress < 0,
		"max-connections, max-connections-per-address: %d and %d; want positive numbers", cfg.MaxConnections, cfg.MaxConnectionsPerAddress)
	f.addIf(min(cfg.MaxCallsPerPrincipal, cfg.MaxNewSessionsPerPrincipal, cfg.MaxCallsPerAddress, cfg.MaxHandshakesPerAddress) < 0,
		"max-calls-per-principal, max-new-sessions-per-principal, max-calls-per-address, max-handshakes-per-address: %d, %d, %d and %d; want positive numbers, or 0 for no bound",
		cfg.MaxCallsPerPrincipal, cfg.MaxNewSessionsPerPrincipal, cfg.MaxCallsPerAddress, cfg.MaxHandshakesPerAddress)
	f.addIf(cfg.ClientMemoryMiB < MinClientMemoryMiB, "client-memory-mib: %d; want %d or more", cfg.ClientMemoryMiB, MinClientMemoryMiB)
	f.addIf(cfg.MaxContentsMiB < 0, "max-contents-mib: %d; want a positive number, or 0 for no bound", cfg.MaxContentsMiB)
}

// checkTLS checks the certificates of both ports, and the tokens, which need them.
func (cfg Config) checkTLS(f *faults) {
	if cfg.Tokens != (TokenConfig{}) {
		cfg.Tokens.Check(func(key, text string) { f.add("%s: %s", key, text) })
		//mutant: f.addIf(false, "token-keys: tokens need TLS: whoever reads one on the network could use it") //by TestTokensNeedTLS of ./cell
		f.addIf(cfg.ClientTLS == (TLSFiles{}), "token-keys: tokens need TLS: whoever reads one on the network could use it")
	}
	if cfg.ClientTLS == (TLSFiles{}) && cfg.PeerTLS == (TLSFiles{}) {
		return
	}
	for _, file := range []struct{ key, name string }{
		{"tls-cert", cfg.ClientTLS.Cert}, {"tls-key", cfg.ClientTLS.Key}, {"tls-ca", cfg.ClientTLS.CA},
		{"peer-tls-cert", cfg.PeerTLS.Cert}, {"peer-tls-key", cfg.PeerTLS.Key}, {"peer-tls-ca", cfg.PeerTLS.CA},
	} {
		needless := file.key == "tls-ca" && cfg.Tokens != (TokenConfig{})
		f.addIf(file.name == "" && !needless, "%s: no file is named, and others of TLS are: both ports need a certificate, its key and an authority", file.key)
	}
	f.addIf(cfg.InsecurePrincipals, "insecure-principals: with TLS, a client's certificate says who it is")
}

func (cfg Config) checkMetricPrefixes(f *faults) {
	f.addIf(len(cfg.MetricPrefixes) > MaxMetricPrefixes, "metric-prefixes: %d paths; at most %d are possible", len(cfg.MetricPrefixes), MaxMetricPrefixes)
	var before []api.Name
	for _, text := range cfg.MetricPrefixes {
		path, err := api.ParsePath(text)
		switch {
		case err != nil:
			f.add("metric-prefixes: %v", err)
			continue
		case path.Cell() != cfg.Cell && path.Cell() != api.LocalCell:
			f.add("metric-prefixes: %q is of another cell", text)
		case slices.Contains(before, path.Name()):
			f.add("metric-prefixes: %q is there twice", text)
		}
		before = append(before, path.Name())
	}
}

func (cfg Config) checkMembers(f *faults) {
	seen := map[string]string{}
	once := func(what, value, of string) {
		if was, ok := seen[what+value]; ok {
			f.add("members: %s and %s have the same %s, %s", was, of, what, value)
		}
		seen[what+value] = of
	}
	for _, m := range cfg.Members {
		if len(m.ID) > 64 || !api.ValidCell(m.ID) { // the roster could not hold it, and no member could be changed
			f.add("members: %q is no replica's id: want 1 to 64 letters, digits, '-', '_' and '.'", m.ID)
		}
		once("id", m.ID, m.ID)
		for what, address := range map[string]string{"client address": m.Client, "raft address": m.Raft, "http address": m.HTTP} {
			if address == "" && what == "http address" {
				continue
			}
			if host, _, err := net.SplitHostPort(address); err != nil || host == "" {
				f.add("members: the %s of %s, %q, is not host:port", what, m.ID, address)
				continue
			}
			if len(address) > peer.MaxText {
				f.add("members: the %s of %s has %d bytes, and at most %d can be told to others", what, m.ID, len(address), peer.MaxText)
			}
			once("address", address, m.ID)
		}
	}
}

func (cfg Config) checkAddresses(f *faults) {
	for _, a := range []struct{ what, address string }{
		{"listen: the client address", cfg.Listen.Client}, {"listen: the raft address", cfg.Listen.Raft},
		{"listen: the http address", cfg.Listen.HTTP}, {"advertise: the client address", cfg.Advertise},
	} {
		host, _, err := net.SplitHostPort(a.address)
		f.addIf(a.address != "" && err != nil, "%s, %q, is not host:port", a.what, a.address)
		f.addIf(a.address != "" && a.address == cfg.Advertise && host == "" && err == nil, "%s, %q, names no host", a.what, a.address)
		f.addIf(len(a.address) > peer.MaxText, "%s has %d bytes, and at most %d can be told to others", a.what, len(a.address), peer.MaxText)
	}
	type port struct {
		what, address string
		given         net.Listener
	}
	where := cfg.listenAddresses()
	ports := []port{{"clients", where.Client, cfg.ClientListener}, {"raft", where.Raft, cfg.RaftListener}, {"http", where.HTTP, cfg.HTTPListener}}
	for i, one := range ports {
		for _, other := range ports[:i] {
			f.addIf(one.given == nil && other.given == nil && overlap(one.address, other.address),
				"listen: %s (for %s) and %s (for %s) are the same port here: give each its own, or say where to listen (listen)", other.address, other.what, one.address, one.what)
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

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cmd/chubbyd/internal/names"
	"github.com/chubbylock/chubby/internal/backupstore"
	"github.com/chubbylock/chubby/internal/otlp"
)

// settings are one replica's, from all sources.
type settings struct {
	replica    cell.Config
	logLevel   slog.Level
	logFormat  string // text or json
	insecure   bool   // run without certificates
	publishing publishing
	tracing    tracing
	stop       time.Duration // how long a stop may take before the process ends anyway

	listenHost string // the host to listen on, with the member's ports; empty if unset
}

// key is one setting. Its name is that in the file and of the flag, and, as CHUBBYD_NAME, of the variable.
type key struct {
	name  string
	usage string
	value
}

// keys returns every setting, with its default. File, flags, environment, `config check`, `config example` and
// docs/chubbyd.md derive from it.
func keys() []key {
	s := defaults()
	return s.keys()
}

// keys returns the keys that set these settings.
func (s *settings) keys() []key {
	stores := oneOf("log store", &s.replica.LogStore, cell.LogStores()...)
	return []key{
		{"cell", "the cell's name, the second part of every path", nameOf("cell", "", &s.replica.Cell)},
		{"id", "this replica's name, one of the members", nameOf("replica", ", as in r1", &s.replica.ID)},
		{"members", `every replica of the cell when it begins: "ID=CLIENT,RAFT[,HTTP];..." with host:port each`, special("a list with id, client, raft and http of each; as a flag or variable, the text at the right", "", s.setMembers)},
		{"listen", "where this replica listens: a host, or CLIENT,RAFT[,HTTP] with host:port each; auto: as its member says, for a name on every interface; a host leaves an http port at localhost there", special("auto, a host, or two or three addresses", auto, s.setListen, auto)},
		{"advertise", "the host:port at which clients reach this replica; auto: as its member says", checked("auto, or host:port", auto, &s.replica.Advertise, checkAddress)},
		{"data", "the directory that belongs to this replica alone", checked("a directory", "", &s.replica.Data, given("name a directory"))},
		{"bootstrap", "begin the cell if the data directory holds nothing; every member needs it", switched(&s.replica.Bootstrap)},
		{"join", "wait to be added to a cell if the data directory holds nothing (chubbyctl cell add)", switched(&s.replica.Join)},
		{"spare", "as join, for a replica that stands by until another is dead (chubbyctl cell add --spare)", switched(&s.replica.Spare)},
		{"replace-after", "how long a replica is dead before a spare takes its place, 10s to 720h", duration(cell.MinReplaceAfter, 720*time.Hour, &s.replica.ReplaceAfter)},
		{"operators", "who may do what concerns the whole cell, when it begins; afterwards /ls/CELL/acl/operators says who may", special("none, everybody, or principals, separated by commas", none, s.setOperators, none, everybody)},
		{"log-store", "where the Raft log is kept: " + stores.takes, stores},
		{"election-timeout", "how long a silent master is waited for, 50ms to 900ms", duration(cell.MinElectionTimeout, cell.MaxElectionTimeout, &s.replica.ElectionTimeout)},
		{"disk-stall", "how long one operation on the disk may take until the replica ends, so that others go on, 1s to 10m", duration(cell.MinDiskStall, cell.MaxDiskStall, &s.replica.DiskStall)},
		{"slow-client", "end a client that holds up a change for so long, 1s to 1m; 0 waits for its lease", durationOrZero(time.Second, time.Minute, &s.replica.SlowClient)},
		{"keepalives", "how many KeepAlives a second a master wants at most: leases are lengthened", number(1, 1e6, &s.replica.KeepAlives)},
		{"max-connections", "how many connections of clients this replica accepts", count(1, 1_000_000, &s.replica.MaxConnections)},
		{"max-connections-per-address", "how many of those from one IP address", count(1, 1_000_000, &s.replica.MaxConnectionsPerAddress)},
		{"max-calls-per-principal", "how many calls a second one principal may make; 0: no bound", count(0, 100_000_000, &s.replica.MaxCallsPerPrincipal)},
		{"max-new-sessions-per-principal", "how many sessions a second one principal may open; 0: no bound", count(0, 1_000_000, &s.replica.MaxNewSessionsPerPrincipal)},
		{"max-calls-per-address", "how many calls a second may come from one IP address; 0: no bound", count(0, 100_000_000, &s.replica.MaxCallsPerAddress)},
		{"max-handshakes-per-address", "how many connections a second may be opened from one IP address; 0: no bound", count(0, 1_000_000, &s.replica.MaxHandshakesPerAddress)},
		{"client-memory-mib", "how much memory the calls of clients may hold, in MiB; those of an address a quarter of it", count(cell.MinClientMemoryMiB, 1<<20, &s.replica.ClientMemoryMiB)},
		{"max-contents-mib", "how much the cell may hold, in MiB: contents (those of access control lists three times), names, and 1 KiB for each node; what makes it more is refused; 0: two fifths of the memory that this process may use", count(0, 1<<20, &s.replica.MaxContentsMiB)},
		{"tls-cert", "the certificate that clients are shown, in PEM", file(&s.replica.ClientTLS.Cert)},
		{"tls-key", "its key", file(&s.replica.ClientTLS.Key)},
		{"tls-ca", "the authorities of clients' certificates", file(&s.replica.ClientTLS.CA)},
		{"tls-crl", "revocation lists of these authorities", file(&s.replica.ClientTLS.CRL)},
		{"peer-tls-cert", "the certificate that the other replicas are shown; its URI is chubby://CELL/replica/ID", file(&s.replica.PeerTLS.Cert)},
		{"peer-tls-key", "its key", file(&s.replica.PeerTLS.Key)},
		{"peer-tls-ca", "the authorities of replicas' certificates; not those of clients, nor signed by them, nor their issuers", file(&s.replica.PeerTLS.CA)},
		{"peer-tls-crl", "revocation lists of these authorities", file(&s.replica.PeerTLS.CRL)},
		{"token-keys", "the keys of an issuer whose tokens name clients, a JSON Web Key Set", checked("none, a file, or a URL of https", none, &s.replica.Tokens.Keys, given("name a file or a URL, or say none"))},
		{"token-keys-ca", "the authorities of that URL's server; none: those of the system", file(&s.replica.Tokens.KeysCA)},
		{"token-keys-token", "a token for that server, as Kubernetes wants one", file(&s.replica.Tokens.KeysToken)},
		{"token-issuer", "the issuer, as tokens name it (iss)", text(&s.replica.Tokens.Issuer)},
		{"token-audience", "the audience that tokens must be for (aud)", text(&s.replica.Tokens.Audience)},
		{"token-claim", "the claim of a token that names its principal; none: sub", text(&s.replica.Tokens.Claim)},
		{"audit-file", "where it is recorded what operators do and who changes rights; who is refused is recorded beside it, in NAME-refused.log for NAME.log", checked("none, stdout, or a file", none, &s.replica.Audit.File, given("name a file, or say none"), cell.AuditStdout)},
		{"audit-file-mib", "the size, in MiB, at which each of these files is renamed and begun anew", count(1, cell.MaxAuditMiB, &s.replica.Audit.MiB)},
		{"audit-files", "how many renamed ones of each are kept; 0 leaves renaming to others", count(0, cell.MaxAuditFiles, &s.replica.Audit.Files)},
		{"dns-server", "the primary server of a zone whose SRV records the master keeps, by dynamic updates (RFC 2136)", special("none, or host:port", none, s.setDNSServer, none)},
		{"dns-domain", "the zone, or a name in it: CHUBBY_DOMAIN of the clients", text(&s.publishing.dns.Domain)},
		{"dns-key", "the key that signs these updates (TSIG), a file as tsig-keygen writes one", file(&s.publishing.dns.KeyFile)},
		{"dns-ttl", "how long others may keep these records, 1s to 24h", duration(time.Second, maxTTL, &s.publishing.dns.TTL)},
		{"dns-hook", "a program that the master runs instead, with the replicas on its standard input", checked("none, or an absolute path", none, (*string)(&s.publishing.hook), checkAbsolute)},
		{"backup-to", "where the master puts a backup from time to time: a directory, or s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME", special("none, an absolute path, or s3://...", none, s.setBackupTo, none)},
		{"backup-every", "how often, 1m to 720h", duration(cell.MinBackupEvery, cell.MaxBackupEvery, &s.replica.Backups.Every)},
		{"backup-keep", "how many of them stay", count(1, cell.MaxBackupKeep, &s.replica.Backups.Keep)},
		{"metric-prefixes", "paths of this cell; how long locks below each are waited for and held is counted apart (/metrics)", special("none, or paths, separated by commas", none, s.setMetricPrefixes, none)},
		{"trace-endpoint", "where spans of calls are sent, by OTLP over gRPC: http://HOST:PORT, or https://HOST:PORT with TLS; OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE and their like count", checked("none, or http(s)://HOST:PORT", none, &s.tracing.endpoint, otlp.CheckEndpoint)},
		{"trace-ratio", "the part of calls that are traced of those that belong to no trace yet", number(0, 1, &s.tracing.ratio)},
		{"console", "serve a console for browsers at the http port: over TLS if the cell has certificates, else on 127.0.0.1 only", switched(&s.replica.Console)},
		{"insecure", "run without certificates: whoever reaches this replica may do anything, and read what is on the network", switched(&s.insecure)},
		{"insecure-principals", "believe clients who they are; for development only", switched(&s.replica.InsecurePrincipals)},
		{"log-level", "the least level that is logged: debug, info, warn or error", level(&s.logLevel)},
		{"log-format", "how log lines are written: text or json", oneOf("format", &s.logFormat, "text", "json")},
		{"stop-timeout", "how long a stop may take; a master hands over first", duration(time.Second, 10*time.Minute, &s.stop)},
	}
}

// variable returns the environment variable of a key.
func variable(key string) string {
	return "CHUBBYD_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

func defaults() settings {
	return settings{
		replica: cell.Config{
			LogStore:                   cell.DefaultLogStore,
			ElectionTimeout:            cell.DefaultElectionTimeout,
			DiskStall:                  cell.DefaultDiskStall,
			ReplaceAfter:               cell.DefaultReplaceAfter,
			KeepAlives:                 cell.DefaultKeepAlives,
			MaxConnections:             cell.DefaultMaxConnections,
			MaxConnectionsPerAddress:   cell.DefaultMaxConnectionsPerAddress,
			MaxCallsPerPrincipal:       cell.DefaultMaxCallsPerPrincipal,
			MaxNewSessionsPerPrincipal: cell.DefaultMaxNewSessionsPerPrincipal,
			MaxCallsPerAddress:         cell.DefaultMaxCallsPerAddress,
			MaxHandshakesPerAddress:    cell.DefaultMaxHandshakesPerAddress,
			ClientMemoryMiB:            cell.DefaultClientMemoryMiB,
			Audit:                      cell.AuditConfig{MiB: cell.DefaultAuditMiB, Files: cell.DefaultAuditFiles},
			Backups:                    cell.BackupSchedule{Every: 6 * time.Hour, Keep: 28}, // a week of them
		},
		publishing: publishing{dns: names.DNS{TTL: defaultTTL}},
		tracing:    tracing{ratio: defaultTraceRatio},
		logLevel:   slog.LevelInfo, logFormat: "text",
		stop: 10 * time.Second,
	}
}

func (s *settings) setMembers(text string) error {
	members, err := parseMembers(text)
	if err != nil {
		return err
	}
	s.replica.Members = members
	return nil
}

// everybody is the value of operators for everybody.
const everybody = "everybody"

func (s *settings) setOperators(text string) error {
	s.replica.Operators = nil
	switch text {
	case none:
		return nil
	case everybody:
		s.replica.Operators = []string{"*"}
		return nil
	}
	for principal := range strings.SplitSeq(text, ",") {
		if principal = strings.TrimSpace(principal); principal == "" || principal == "*" {
			return fmt.Errorf("%q has no principal in it; name them, separated by commas, or say everybody or none", text)
		}
		s.replica.Operators = append(s.replica.Operators, principal)
	}
	return nil
}

func (s *settings) setMetricPrefixes(text string) error {
	if s.replica.MetricPrefixes = nil; text == none {
		return nil
	}
	for path := range strings.SplitSeq(text, ",") {
		s.replica.MetricPrefixes = append(s.replica.MetricPrefixes, strings.TrimSpace(path))
	}
	return nil
}

// parseMembers reads "r1=client,raft,http;r2=client,raft".
func parseMembers(text string) ([]cell.Member, error) {
	var members []cell.Member
	for item := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		id, rest, found := strings.Cut(strings.TrimSpace(item), "=")
		addresses := strings.Split(rest, ",")
		if !found || len(addresses) < 2 || len(addresses) > 3 {
			return nil, fmt.Errorf("%q is not a member: want ID=CLIENT,RAFT[,HTTP], as in r1=h1:7421,h1:7431,h1:7441", item)
		}
		m := cell.Member{ID: id, Client: addresses[0], Raft: addresses[1]}
		if len(addresses) == 3 {
			m.HTTP = addresses[2]
		}
		members = append(members, m)
	}
	return members, nil
}

// membersText is the reverse of parseMembers.
func membersText(members []cell.Member) string {
	var list []string
	for _, m := range members {
		text := m.ID + "=" + m.Client + "," + m.Raft
		if m.HTTP != "" {
			text += "," + m.HTTP
		}
		list = append(list, text)
	}
	return strings.Join(list, ";")
}

// checkAddress returns the fault of an address that others must reach.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q has no port from 1 to 65535", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%q names no host: others must be able to reach this address", address)
	}
	return nil
}

func (s *settings) setBackupTo(text string) error {
	if text == none {
		s.replica.Backups.Place = nil
		return nil
	}
	to, err := backupstore.At(text)
	if err == nil {
		s.replica.Backups.Place = to
	}
	return err
}

// Limits of how long others may keep a record.
const (
	defaultTTL = time.Minute
	maxTTL     = 24 * time.Hour
)

func (s *settings) setDNSServer(text string) error {
	if text == none {
		s.publishing.dns.Server = ""
		return nil
	}
	if _, _, err := net.SplitHostPort(text); err != nil {
		text = net.JoinHostPort(text, strconv.Itoa(dnsPort))
	}
	s.publishing.dns.Server = text
	return checkAddress(text)
}

const dnsPort = 53

func checkAbsolute(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	return nil
}

// auto is the value of a setting that the replica chooses.
const auto = "auto"

// setListen reads where to listen: a host, with the member's ports, or CLIENT,RAFT[,HTTP].
func (s *settings) setListen(text string) error {
	s.listenHost, s.replica.Listen = "", cell.Addresses{}
	addresses := strings.Split(text, ",")
	switch {
	case text == "":
		return errors.New("is empty; name a host, as in 0.0.0.0, or leave it to 'auto'")
	case text == auto:
		return nil
	case len(addresses) == 1:
		if _, _, err := net.SplitHostPort(text); err == nil {
			return fmt.Errorf("%q has a port, and a replica has two or three: want a host alone, as in 0.0.0.0, or CLIENT,RAFT[,HTTP], as in :7421,:7431,:7441", text)
		}
		s.listenHost = strings.Trim(text, "[]")
		return nil
	case len(addresses) > 3:
		return fmt.Errorf("%q has %d addresses: want CLIENT,RAFT[,HTTP], as in :7421,:7431,:7441", text, len(addresses))
	}
	for i, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%q is not [host]:port", address)
		}
		*[]*string{&s.replica.Listen.Client, &s.replica.Listen.Raft, &s.replica.Listen.HTTP}[i] = address
	}
	return nil
}

// publishing is how clients find the replicas by the cell's name: at most one of the two.
type publishing struct {
	dns  names.DNS  // if its Server is not empty
	hook names.Hook // if it is not empty
}

func (p publishing) install(replica *cell.Config) {
	switch {
	case p.hook != "":
		replica.Publish = p.hook.Publish
	case p.dns.Server != "":
		p.dns.Now = wallNow
		replica.Publish = p.dns.Publish
	}
}

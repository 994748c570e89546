package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cmd/chubbyd/internal/names"
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

// keys returns every setting. File, flags, environment, `config check`, `config example` and docs/chubbyd.md
// derive from it.
func keys() []key {
	stores := oneOf("log store", func(s *settings) *cell.LogStore { return &s.replica.LogStore }, cell.LogStores()...)
	return slices.Concat([]key{
		{"cell", "the cell's name, the second part of every path", special(nameText, "", setCell)},
		{"id", "this replica's name, one of the members", special(nameText, "", setID)},
		{"members", `every replica of the cell when it begins: "ID=CLIENT,RAFT[,HTTP];..." with host:port each`, special("a list with id, client, raft and http of each; as a flag or variable, the text at the right", "", setMembers)},
		{"listen", "where this replica listens: a host, or CLIENT,RAFT[,HTTP] with host:port each; auto: as its member says, for a name on every interface; a host leaves an http port at localhost there", special("auto, a host, or two or three addresses", auto, setListen, auto)},
		{"advertise", "the host:port at which clients reach this replica; auto: as its member says", special("auto, or host:port", auto, setAdvertise, auto)},
		{"data", "the directory that belongs to this replica alone", special("a directory", "", setData)},
		{"bootstrap", "begin the cell if the data directory holds nothing; every member needs it", switched(func(s *settings) *bool { return &s.replica.Bootstrap })},
		{"join", "wait to be added to a cell if the data directory holds nothing (chubbyctl cell add)", switched(func(s *settings) *bool { return &s.replica.Join })},
		{"spare", "as join, for a replica that stands by until another is dead (chubbyctl cell add --spare)", switched(func(s *settings) *bool { return &s.replica.Spare })},
		{"replace-after", "how long a replica is dead before a spare takes its place, 10s to 720h", duration(cell.MinReplaceAfter, 720*time.Hour, func(s *settings) *time.Duration { return &s.replica.ReplaceAfter })},
		{"operators", "who may do what concerns the whole cell, when it begins; afterwards /ls/CELL/acl/operators says who may", special("none, everybody, or principals, separated by commas", none, setOperators, none, everybody)},
		{"log-store", "where the Raft log is kept: " + stores.takes, stores},
		{"election-timeout", "how long a silent master is waited for, 50ms to 900ms", duration(cell.MinElectionTimeout, cell.MaxElectionTimeout, func(s *settings) *time.Duration { return &s.replica.ElectionTimeout })},
		{"disk-stall", "how long one operation on the disk may take until the replica ends, so that others go on, 1s to 10m", duration(cell.MinDiskStall, cell.MaxDiskStall, func(s *settings) *time.Duration { return &s.replica.DiskStall })},
		{"slow-client", "end a client that holds up a change for so long, 1s to 1m; 0 waits for its lease", durationOrZero(time.Second, time.Minute, func(s *settings) *time.Duration { return &s.replica.SlowClient })},
		{"keepalives", "how many KeepAlives a second a master wants at most: leases are lengthened", number(1, 1e6, func(s *settings) *float64 { return &s.replica.KeepAlives })},
	}, boundKeys(), []key{
		{"tls-cert", "the certificate that clients are shown, in PEM", file(func(s *settings) *string { return &s.replica.ClientTLS.Cert })},
		{"tls-key", "its key", file(func(s *settings) *string { return &s.replica.ClientTLS.Key })},
		{"tls-ca", "the authorities of clients' certificates", file(func(s *settings) *string { return &s.replica.ClientTLS.CA })},
		{"tls-crl", "revocation lists of these authorities", file(func(s *settings) *string { return &s.replica.ClientTLS.CRL })},
		{"peer-tls-cert", "the certificate that the other replicas are shown; its URI is chubby://CELL/replica/ID", file(func(s *settings) *string { return &s.replica.PeerTLS.Cert })},
		{"peer-tls-key", "its key", file(func(s *settings) *string { return &s.replica.PeerTLS.Key })},
		{"peer-tls-ca", "the authorities of replicas' certificates; not those of clients, nor signed by them, nor their issuers", file(func(s *settings) *string { return &s.replica.PeerTLS.CA })},
		{"peer-tls-crl", "revocation lists of these authorities", file(func(s *settings) *string { return &s.replica.PeerTLS.CRL })},
		{"token-keys", "the keys of an issuer whose tokens name clients, a JSON Web Key Set", special("none, a file, or a URL of https", none, setTokenKeys, none)},
		{"token-keys-ca", "the authorities of that URL's server; none: those of the system", file(func(s *settings) *string { return &s.replica.Tokens.KeysCA })},
		{"token-keys-token", "a token for that server, as Kubernetes wants one", file(func(s *settings) *string { return &s.replica.Tokens.KeysToken })},
		{"token-issuer", "the issuer, as tokens name it (iss)", text(func(s *settings) *string { return &s.replica.Tokens.Issuer })},
		{"token-audience", "the audience that tokens must be for (aud)", text(func(s *settings) *string { return &s.replica.Tokens.Audience })},
		{"token-claim", "the claim of a token that names its principal; none: sub", text(func(s *settings) *string { return &s.replica.Tokens.Claim })},
		{"audit-file", "where it is recorded what operators do and who changes rights; who is refused is recorded beside it, in NAME-refused.log for NAME.log", special("none, stdout, or a file", none, setAuditFile, none, cell.AuditStdout)},
		{"audit-file-mib", "the size, in MiB, at which each of these files is renamed and begun anew", count(1, cell.MaxAuditMiB, func(s *settings) *int { return &s.replica.Audit.MiB })},
		{"audit-files", "how many renamed ones of each are kept; 0 leaves renaming to others", count(0, cell.MaxAuditFiles, func(s *settings) *int { return &s.replica.Audit.Files })},
	}, publishKeys(), backupKeys(), []key{
		{"metric-prefixes", "paths of this cell; how long locks below each are waited for and held is counted apart (/metrics)", special("none, or paths, separated by commas", none, setMetricPrefixes, none)},
	}, traceKeys(), []key{
		{"console", "serve a console for browsers at the http port: over TLS if the cell has certificates, else on 127.0.0.1 only", switched(func(s *settings) *bool { return &s.replica.Console })},
		{"insecure", "run without certificates: whoever reaches this replica may do anything, and read what is on the network", switched(func(s *settings) *bool { return &s.insecure })},
		{"insecure-principals", "believe clients who they are; for development only", switched(func(s *settings) *bool { return &s.replica.InsecurePrincipals })},
		{"log-level", "the least level that is logged: debug, info, warn or error", logLevels()},
		{"log-format", "how log lines are written: text or json", oneOf("format", func(s *settings) *string { return &s.logFormat }, "text", "json")},
		{"stop-timeout", "how long a stop may take; a master hands over first", duration(time.Second, 10*time.Minute, func(s *settings) *time.Duration { return &s.stop })},
	})
}

// nameText describes the values of setCell and setID.
const nameText = "letters, digits, '-', '_' and '.'"

// requiredKeys have no default.
func requiredKeys() []string { return []string{"cell", "id", "members", "data"} }

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
			Backups:                    cell.BackupSchedule{Every: defaultBackupEvery, Keep: defaultBackupKeep},
		},
		publishing: publishing{dns: names.DNS{TTL: defaultTTL}},
		tracing:    tracing{ratio: defaultTraceRatio},
		logLevel:   slog.LevelInfo, logFormat: "text",
		stop: 10 * time.Second,
	}
}

func setCell(s *settings, text string) error {
	if !api.ValidCell(text) {
		return fmt.Errorf("%q cannot be a cell's name: use letters, digits, '-', '_' and '.'", text)
	}
	s.replica.Cell = text
	return nil
}

func setID(s *settings, text string) error {
	if !api.ValidCell(text) {
		return fmt.Errorf("%q cannot be a replica's name: use letters, digits, '-', '_' and '.', as in r1", text)
	}
	s.replica.ID = text
	return nil
}

func setMembers(s *settings, text string) error {
	members, err := parseMembers(text)
	if err != nil {
		return err
	}
	s.replica.Members = members
	return nil
}

func setData(s *settings, text string) error {
	if text == "" {
		return errors.New("is empty; name a directory")
	}
	s.replica.Data = text
	return nil
}

func setAuditFile(s *settings, text string) error {
	return file(func(s *settings) *string { return &s.replica.Audit.File }).set(s, text)
}

// everybody is the value of operators for everybody.
const everybody = "everybody"

func setOperators(s *settings, text string) error {
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

func setMetricPrefixes(s *settings, text string) error {
	if s.replica.MetricPrefixes = nil; text == none {
		return nil
	}
	for path := range strings.SplitSeq(text, ",") {
		s.replica.MetricPrefixes = append(s.replica.MetricPrefixes, strings.TrimSpace(path))
	}
	return nil
}

func setTokenKeys(s *settings, text string) error {
	switch text {
	case "":
		return errors.New("is empty; name a file or a URL, or say none")
	case none:
		text = ""
	}
	s.replica.Tokens.Keys = text
	return nil
}

func logLevels() value {
	return special("debug, info, warn or error", strings.ToLower(defaults().logLevel.String()), setLogLevel, "debug", "info", "warn", "error")
}

func setLogLevel(s *settings, text string) error {
	if err := s.logLevel.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is not a level: want debug, info, warn or error", text)
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

// addressProblem returns the fault of an address that others must reach, or "".
func addressProblem(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("%q is not host:port", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Sprintf("%q has no port from 1 to 65535", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Sprintf("%q names no host: others must be able to reach this address", address)
	}
	return ""
}

// place is the source of a value: a line and column of a file, a variable or a flag.
type place struct {
	source       string
	line, column int // 0 for a source without lines
}

func (p place) String() string {
	if p.line == 0 {
		return p.source
	}
	return fmt.Sprintf("%s:%d:%d", p.source, p.line, p.column)
}

type problem struct {
	at   place
	text string
}

func (f problem) String() string { return f.at.String() + ": " + f.text }

// draft collects settings from several sources, where later ones override, and all problems.
type draft struct {
	settings
	main     place             // of keys that no source has set
	at       map[string]place  // of each set key
	texts    map[string]string // its value
	memberAt []place           // of each member
	problems []problem
}

func newDraft(source string) *draft {
	return &draft{settings: defaults(), main: place{source: source}, at: make(map[string]place), texts: make(map[string]string)}
}

func (d *draft) addProblem(at place, format string, args ...any) {
	d.problems = append(d.problems, problem{at, fmt.Sprintf(format, args...)})
}

func (d *draft) set(k key, text string, at place) {
	d.at[k.name], d.texts[k.name] = at, text
	if err := k.set(&d.settings, text); err != nil {
		d.addProblem(at, "%s: %v", k.name, err)
		return
	}
	if k.name == "members" {
		d.memberAt = slices.Repeat([]place{at}, len(d.replica.Members))
	}
}

// validate checks the settings together, after all sources, and returns all problems by place.
func (d *draft) validate() []problem {
	for _, name := range requiredKeys() {
		if _, ok := d.at[name]; !ok {
			d.addProblem(d.main, "%s is missing; see 'chubbyd config example'", name)
		}
	}
	d.validateMembers()
	d.validateCertificates()
	d.validatePublishing()
	d.placeListen()
	if len(d.problems) == 0 { // the cell checks more at the replica's start
		var e *api.Error
		if err := d.replica.Check(); errors.As(err, &e) {
			d.addProblem(d.main, "%s", e.Message)
		}
	}
	slices.SortStableFunc(d.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.at.source, b.at.source), cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.column, b.at.column))
	})
	return d.problems
}

// validateCertificates requires certificates, or the setting insecure.
func (d *draft) validateCertificates() {
	named := d.replica.ClientTLS != (cell.TLSFiles{}) || d.replica.PeerTLS != (cell.TLSFiles{})
	switch {
	case !named && !d.insecure:
		d.addProblem(d.main, "tls-cert is missing, and all other certificates: 'chubbyd certs --help' says how to make them. "+
			"Or say insecure: true; then whoever reaches this replica may do anything")
	case named && d.insecure:
		d.addProblem(d.at["insecure"], "insecure: certificates are named, too; leave out one or the other")
	case named && d.replica.Bootstrap && len(d.replica.Operators) == 0:
		d.addProblem(d.at["bootstrap"], "bootstrap: nobody is named in operators; say who may change the access control lists of the new cell, end sessions and restore backups, as in operators: alice@example.org, or say everybody")
	}
}

func (d *draft) validateMembers() {
	ids := make(map[string]place)
	addresses := make(map[string]string)
	for i, m := range d.replica.Members {
		at := d.memberAt[i]
		if !api.ValidCell(m.ID) {
			d.addProblem(at, "members: %q cannot be a replica's name: use letters, digits, '-', '_' and '.', as in r1", m.ID)
		} else if earlier, ok := ids[m.ID]; ok {
			d.addProblem(at, "members: %s is there twice, first at %v", m.ID, earlier)
		} else {
			ids[m.ID] = at
		}
		for _, a := range []struct{ name, address string }{{"client", m.Client}, {"raft", m.Raft}, {"http", m.HTTP}} {
			if a.address == "" && a.name == "http" {
				continue
			}
			user := m.ID + "'s " + a.name
			if text := addressProblem(a.address); text != "" {
				d.addProblem(at, "members: %s address: %s", user, text)
			} else if earlier, ok := addresses[a.address]; ok {
				d.addProblem(at, "members: %s address %s is also %s", user, a.address, earlier)
			} else {
				addresses[a.address] = user
			}
		}
	}
	if at, ok := d.at["members"]; ok && len(d.replica.Members) == 0 && !d.hasProblemAt(at) {
		d.addProblem(at, "members: is empty; a cell has one, three or five replicas")
	}
	at, ok := d.at["id"]
	if _, known := ids[d.replica.ID]; ok && d.replica.ID != "" && len(ids) > 0 && !known {
		d.addProblem(at, "id: %s is none of the members; add it there, or correct it", d.replica.ID)
	}
}

func (d *draft) hasProblemAt(at place) bool {
	return slices.ContainsFunc(d.problems, func(f problem) bool { return f.at == at })
}

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
)

// settings are those of one replica, from all sources.
type settings struct {
	replica   cell.Config
	logLevel  slog.Level
	logFormat string        // text or json
	stop      time.Duration // how long a stop may take before the process ends regardless

	listenHost string // the host to listen on, with the ports of this replica's member; empty if none was set
}

// key is one setting. Its name is that in the file and of the flag, and, as CHUBBYD_NAME,
// of the variable.
type key struct {
	name  string
	usage string
	set   func(*settings, string) error
}

// keys lists every setting. File, flags, environment, `config check` and `config example`
// all work from it.
func keys() []key {
	return []key{
		{"cell", "the cell's name, the second part of every path", setCell},
		{"id", "this replica's name, one of the members", setID},
		{"members", `every replica of the cell: "ID=CLIENT,RAFT[,HTTP];..." with host:port each`, setMembers},
		{"listen", "where this replica listens: a host, or CLIENT,RAFT[,HTTP] with host:port each; auto: as its member says, for a name on every interface", setListen},
		{"advertise", "the host:port at which clients reach this replica; auto: as its member says", setAdvertise},
		{"data", "the directory that belongs to this replica alone", setData},
		{"bootstrap", "begin the cell if the data directory holds nothing; every member needs it", setBootstrap},
		{"log-store", "where the Raft log is kept: boltdb or wal", setLogStore},
		{"election-timeout", "how long a silent master is waited for, 50ms to 900ms", setElectionTimeout},
		{"slow-client", "end a client that holds up a change for so long, 1s to 1m; 0 waits for its lease", setSlowClient},
		{"keepalives", "how many KeepAlives a second a master wants at most: leases are lengthened", setKeepAlives},
		{"max-connections", "how many connections of clients this replica accepts", setMaxConnections},
		{"max-connections-per-address", "how many of those from one IP address", setMaxConnectionsPerAddress},
		{"insecure-principals", "believe clients who they are; for development only", setInsecurePrincipals},
		{"log-level", "the least level that is logged: debug, info, warn or error", setLogLevel},
		{"log-format", "how log lines are written: text or json", setLogFormat},
		{"stop-timeout", "how long a stop may take; a master hands over first", setStopTimeout},
	}
}

// variable is the name of the environment variable of a key.
func variable(key string) string {
	return "CHUBBYD_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

func defaults() settings {
	return settings{
		replica: cell.Config{
			LogStore:                 cell.DefaultLogStore,
			ElectionTimeout:          cell.DefaultElectionTimeout,
			KeepAlives:               cell.DefaultKeepAlives,
			MaxConnections:           cell.DefaultMaxConnections,
			MaxConnectionsPerAddress: cell.DefaultMaxConnectionsPerAddress,
		},
		logLevel:  slog.LevelInfo,
		logFormat: "text",
		stop:      10 * time.Second,
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

func setLogStore(s *settings, text string) error {
	store := cell.LogStore(text)
	if store != cell.BoltStore && store != cell.WALStore {
		return fmt.Errorf("%q is not a log store: want %s or %s", text, cell.BoltStore, cell.WALStore)
	}
	s.replica.LogStore = store
	return nil
}

func setElectionTimeout(s *settings, text string) (err error) {
	s.replica.ElectionTimeout, err = durationWithin(text, cell.MinElectionTimeout, cell.MaxElectionTimeout)
	return err
}

func setSlowClient(s *settings, text string) (err error) {
	if text == "0" {
		s.replica.SlowClient = 0
		return nil
	}
	s.replica.SlowClient, err = durationWithin(text, time.Second, time.Minute)
	return err
}

func setKeepAlives(s *settings, text string) error {
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate >= 1 && rate <= 1e6) {
		return fmt.Errorf("%q is not a number from 1 to 1000000", text)
	}
	s.replica.KeepAlives = rate
	return nil
}

func setMaxConnections(s *settings, text string) (err error) {
	s.replica.MaxConnections, err = countWithin(text, 1, 1_000_000)
	return err
}

func setMaxConnectionsPerAddress(s *settings, text string) (err error) {
	s.replica.MaxConnectionsPerAddress, err = countWithin(text, 1, 1_000_000)
	return err
}

func countWithin(text string, minimum, maximum int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < minimum || n > maximum {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", text, minimum, maximum)
	}
	return n, nil
}

func setStopTimeout(s *settings, text string) (err error) {
	s.stop, err = durationWithin(text, time.Second, 10*time.Minute)
	return err
}

func durationWithin(text string, minimum, maximum time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: want a number and a unit, as in 500ms or 2s", text)
	}
	if d < minimum || d > maximum {
		return 0, fmt.Errorf("%v is outside %v to %v", d, minimum, maximum)
	}
	return d, nil
}

func setBootstrap(s *settings, text string) error { return setSwitch(&s.replica.Bootstrap, text) }

func setInsecurePrincipals(s *settings, text string) error {
	return setSwitch(&s.replica.InsecurePrincipals, text)
}

// setSwitch reads a setting that is true or false.
func setSwitch(to *bool, text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	*to = on
	return nil
}

// isSwitch reports whether a setting is a flag that needs no value.
func isSwitch(key string) bool { return key == "bootstrap" || key == "insecure-principals" }

func setLogLevel(s *settings, text string) error {
	if err := s.logLevel.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is not a level: want debug, info, warn or error", text)
	}
	return nil
}

func setLogFormat(s *settings, text string) error {
	if text != "text" && text != "json" {
		return fmt.Errorf("%q is not a format: want text or json", text)
	}
	s.logFormat = text
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

// addressProblem says what is wrong with an address that others must reach; "" if nothing
// is.
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

// place is where a value was read: a line of a file, a variable or a flag.
type place struct {
	source string
	line   int // 0 if the source has no lines
}

func (p place) String() string {
	if p.line == 0 {
		return p.source
	}
	return fmt.Sprintf("%s:%d", p.source, p.line)
}

// problem is something wrong with the settings.
type problem struct {
	at   place
	text string
}

func (f problem) String() string { return f.at.String() + ": " + f.text }

// draft collects settings from several sources, each of which overrides the ones before,
// and everything that is wrong with them.
type draft struct {
	settings
	main     place            // where a key is missing that no source has set
	at       map[string]place // of each key that was set
	memberAt []place          // of each member
	problems []problem
}

func newDraft(source string) *draft {
	return &draft{settings: defaults(), main: place{source: source}, at: make(map[string]place)}
}

func (d *draft) addProblem(at place, format string, args ...any) {
	d.problems = append(d.problems, problem{at, fmt.Sprintf(format, args...)})
}

// set takes one key's value.
func (d *draft) set(k key, text string, at place) {
	d.at[k.name] = at
	if err := k.set(&d.settings, text); err != nil {
		d.addProblem(at, "%s: %v", k.name, err)
		return
	}
	if k.name == "members" {
		d.memberAt = slices.Repeat([]place{at}, len(d.replica.Members))
	}
}

// validate checks the settings together, when all sources have been read, and returns all
// problems in the order of their places.
func (d *draft) validate() []problem {
	for _, name := range []string{"cell", "id", "members", "data"} {
		if _, ok := d.at[name]; !ok {
			d.addProblem(d.main, "%s is missing; see 'chubbyd config example'", name)
		}
	}
	d.validateMembers()
	d.placeListen()
	if len(d.problems) == 0 { // the cell checks more when the replica starts
		var e *api.Error
		if err := d.replica.Check(); errors.As(err, &e) {
			d.addProblem(d.main, "%s", e.Message)
		}
	}
	slices.SortStableFunc(d.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.at.source, b.at.source), cmp.Compare(a.at.line, b.at.line))
	})
	return d.problems
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

package cell

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/console"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/peer"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/raftfsm"
)

// Believe makes a replica accept an election timeout beyond its bounds. It
// imitates a stopped replica that has not read its clock since.
func (cfg *Config) Believe(election time.Duration) { cfg.beliefs = election }

// Support makes a replica know feature levels up to that one, as one of another version does.
func (cfg *Config) Support(level int) { cfg.supports = level }

// RefuseEntries makes one in ten of the entries that the replica proposes as master fail before it is written. Requests
// that wait for it must see no difference.
func RefuseEntries(cfg *Config) {
	random := rand.New(rand.NewPCG(3, 5)) // used by the proposer only, which appends one entry after the other
	cfg.proposeTo = func(log master.Log) master.Log { return refuser{Log: log, random: random} }
}

type refuser struct {
	master.Log
	random *rand.Rand
}

func (r refuser) Append(entry []byte) ([]raftfsm.Result, error) {
	if r.random.IntN(10) == 0 {
		return nil, api.Errorf(api.NotMaster, "refused before it was written")
	}
	return r.Log.Append(entry)
}

// DelayEntries makes every entry that the replica proposes as master take longer by that time.
func DelayEntries(cfg *Config, by time.Duration) {
	cfg.proposeTo = func(log master.Log) master.Log { return delayer{Log: log, by: by} }
}

type delayer struct {
	master.Log
	by time.Duration
}

func (d delayer) Append(entry []byte) ([]raftfsm.Result, error) {
	<-time.After(d.by)
	return d.Log.Append(entry)
}

// WatchEntries has see called with every entry that a replica proposes, before it is written; replicas that share the configuration call it at once.
func WatchEntries(cfg *Config, see func(raftfsm.Entry)) {
	cfg.proposeTo = func(log master.Log) master.Log { return watcher{Log: log, see: see} }
}

type watcher struct {
	master.Log
	see func(raftfsm.Entry)
}

func (w watcher) Append(entry []byte) ([]raftfsm.Result, error) {
	decoded, err := raftfsm.DecodeEntry(entry)
	if err != nil {
		return nil, err
	}
	w.see(decoded)
	return w.Log.Append(entry)
}

// Rot changes what a replica has in memory, behind its back: was becomes is, of the same length, so that the running hash does not notice.
func (r *Replica) Rot(was, is string) error {
	var state bytes.Buffer
	if _, err := r.fsm.State().WriteTo(&state); err != nil {
		return err
	}
	body := bytes.ReplaceAll(state.Bytes()[:state.Len()-sha256.Size], []byte(was), []byte(is))
	sum := sha256.Sum256(body)
	return r.fsm.Restore(io.NopCloser(bytes.NewReader(append(body, sum[:]...))))
}

// Differing returns which replicas differ from this one, as far as it knows.
func (r *Replica) Differing() []string { return r.checks.comparison.Differing() }

// Lie has a replica say to the others that it has another state than it has, at each check point.
func (r *Replica) Lie() {
	own := r.checks.comparison.Own()
	r.port.AnswerProbes(func() peer.Report {
		report := r.checks.probeReport()
		if report.Check.Index > own.Index {
			report.Check.Sum ^= 1
		}
		return report
	})
}

// HashCheckPoint hashes a state as a replica does at a check point.
func HashCheckPoint(ctx context.Context, state raftfsm.State) ([]byte, error) {
	hash := stateHash{ctx: ctx}
	_, err := state.WriteTo(&hash)
	return hash.last, err
}

// BackupFailures returns how often in succession the replica could not take a backup.
func (r *Replica) BackupFailures() int64 { return r.backups.failures.Load() }

// Gauges returns the gauges of a replica, by name and labels.
func Gauges(r *Replica) map[string]float64 {
	families, err := r.metrics.registry.Gather()
	if err != nil {
		panic(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if g := m.GetGauge(); g != nil {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				values[name] = g.GetValue()
			}
		}
	}
	return values
}

// Measured returns how often a replica has measured something, and the sum of that, by the name of the metric and the
// values of its labels: "chubby_call_seconds OK Open".
func Measured(r *Replica) (counts map[string]uint64, sums map[string]float64) {
	families, err := r.metrics.registry.Gather()
	if err != nil {
		panic(err)
	}
	counts, sums = map[string]uint64{}, map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				counts[name], sums[name] = h.GetSampleCount(), h.GetSampleSum()
			}
		}
	}
	return counts, sums
}

// Voters returns which replicas have a vote, as a master knows it, and whether no change of the replicas is under way.
func Voters(r *Replica) (ids []string, settled bool) {
	_, busy := r.fsm.State().Roster.Unsettled()
	return r.voters(), !busy
}

// Strays returns the replicas that have a vote and are no members, or are members and have none, while no change of the replicas is under way.
func Strays(r *Replica) (ids []string) {
	roster := r.fsm.State().Roster
	if _, busy := roster.Unsettled(); busy {
		return nil
	}
	voters := r.voters()
	for _, m := range roster.Members {
		if slices.Contains(voters, m.ID) != (m.Phase == raftfsm.Settled) {
			ids = append(ids, m.ID)
		}
	}
	if r.fsm.State().Roster.Version != roster.Version {
		return nil // a change has begun
	}
	return ids
}

// Servers returns Raft's newest configuration, as a replica has it: "Voter" or "Nonvoter" by ID.
func Servers(r *Replica) map[string]string {
	servers := map[string]string{}
	for _, s := range r.servers() {
		servers[string(s.ID)] = s.Suffrage.String()
	}
	return servers
}

// DialForGuest connects to a replica's client port as the console does for a visitor.
func (r *Replica) DialForGuest(ctx context.Context, principal, address string) (net.Conn, error) {
	return consoleDoor{r.credentials}.Dial(ctx, console.Guest{Principal: principal, Address: "192.0.2.7:1"}, address)
}

// The checks of testbed, for the tests of this package.

func must[T any](value T, err error) func(testbed.TB) T { return testbed.Must(value, err) }
func noErr(t testbed.TB, err error, what ...any)        { t.Helper(); testbed.NoErr(t, err, what...) }
func report(t testbed.TB, err error, what ...any)       { t.Helper(); testbed.Report(t, err, what...) }
func errOf[T any](_ T, err error) error                 { return err }
func equal[T comparable](t testbed.TB, got, want T, what string) {
	t.Helper()
	testbed.Equal(t, got, want, what)
}
func failIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.FailIf(t, wrong, format, args...)
}
func stopIf(t testbed.TB, wrong bool, format string, args ...any) {
	t.Helper()
	testbed.StopIf(t, wrong, format, args...)
}

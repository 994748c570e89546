package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

var attacksPage = flag.String("docs", "", "write the page about attacks to this file; with -full")

// attackTrial is an attack at one size.
type attackTrial struct {
	name     string // as attackers know it
	what     string // for people
	size     int    // of one child
	children int
	calls    int           // with one connection at most, see task
	lease    time.Duration // of sessions that it opens
	lasts    time.Duration // at least
	until    func(done int64) bool
}

// attackTrials are the attacks, at their full size or at a small one.
func attackTrials() []attackTrial {
	if !*full {
		const lasts = 2 * time.Second
		return []attackTrial{
			{name: "half-open", size: 500, children: 1, lasts: lasts},
			{name: "slow headers", size: 50, children: 1, lasts: lasts},
			// Connections that waste calls are made to rest. Without a limit the last of these would be read half a minute after the attack.
			{name: "resets", size: 2, children: 1, calls: 1000, lasts: lasts},
			{name: "prefixes", size: 2, children: 1, lasts: lasts},
			{name: "slow readers", size: 400, children: 1, lease: api.DefaultLease, lasts: lasts}, // it has to outlast that all are opened,
			{name: "sessions", size: 1500, children: 1, lease: api.MinLease, lasts: lasts},
			{name: "steps", size: 4, children: 1, lasts: lasts},
			{name: "chains", size: 8, children: 1, lasts: lasts},
		}
	}
	const lasts = 15 * time.Second
	return []attackTrial{
		{
			name: "half-open", what: "20,000 half-open handshakes, as fast as they can be opened: half say nothing, half send a ClientHello", size: 10_000, children: 2, lasts: lasts,
			until: func(done int64) bool { return done >= 20_000 },
		},
		{name: "slow headers", what: "2,000 connections that send the headers of a call, a byte a second", size: 2_000, children: 1, lasts: lasts},
		{name: "resets", what: "HEADERS and RST_STREAM as fast as 4 connections take them", size: 4, children: 1, lasts: lasts},
		{name: "prefixes", what: "requests of 1 GiB, announced as fast as 4 connections take them, over HTTP/2 and in frames", size: 4, children: 1, lasts: lasts},
		{name: "slow readers", what: "10,000 sessions that get five events a second of a file's changes, and read nothing", size: 10_000, children: 1, lease: api.MaxLease, lasts: lasts},
		{
			name: "sessions", what: "100,000 sessions, opened as fast as a principal may", size: 100_000, children: 1, lease: api.MaxLease, lasts: lasts,
			until: func(done int64) bool { return done >= 100_000 },
		},
		{name: "steps", what: "transactions of 160,000 empty steps, as fast as 8 connections without a certificate take them, over HTTP/2 and in frames", size: 8, children: 1, lasts: lasts},
		{name: "chains", what: "60 connections at a time that show 6 certificates, of which each might be the issuer of every other", size: 60, children: 1, lasts: lasts},
	}
}

// attackResult is what one attack did.
type attackResult struct {
	trial             attackTrial
	done, rejected    int64
	before, in, after figures
	idle, peak        reading
	attackers         float64 // of a core
	replicas          float64
	recovered         time.Duration
}

// How often a replica is looked at. Its memory is read of the system; to be asked for its metrics takes some of its time.
const (
	betweenLooks    = 200 * time.Millisecond
	looksPerReading = 10
)

// reading is what a replica says of itself.
type reading struct{ memory, connections, held, sessions, goroutines int64 }

// budget is what a replica may take at most, as docs/attacks.md says.
func (r attackResult) budget() int64 {
	const connection, session, mail, slack = 50 << 10, 4 << 10, 256 << 20, 64 << 20 // mail is maxPrincipalMail
	return r.idle.memory + slack + mail + 2*(connection*(r.peak.connections-r.idle.connections)+session*(r.peak.sessions-r.idle.sessions)+r.peak.held)
}

// An honest client is served during every attack, within the limits of latencies that docs/attacks.md names; the master's memory stays within its
// budget, no session or replica ends, and after the attack the master is as before it.
//
// It runs alone in its package: attackers take what processor time is left, and beside other tests that is either nothing, or
// what the master needs to stay the master.
func TestAttacks(t *testing.T) {
	w := newWorld(t)
	w.env = append(steadyMaster(), "GOGC=") // as chubbyd runs by itself, whatever the tests run with
	w.run("--tls")
	var pids []int
	for _, r := range w.replicas() {
		pids = append(pids, r.PID)
	}
	tls := filepath.Join(w.dir, "tls")
	if out, err := command(bin("chubbyd"), "certs", "client", "attacker", "--dir", tls).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	own := client.TLSFiles{CA: filepath.Join(tls, "ca.crt"), Cert: filepath.Join(tls, "client-dev.crt"), Key: filepath.Join(tls, "client-dev.key")}
	h := newHonest(t, w, own)
	var results []attackResult
	for i, trial := range attackTrials() {
		t.Run(trial.name, func(t *testing.T) {
			r := w.attacked(t, h, trial, i, tls)
			results = append(results, r)
			r.check(t)
		})
	}
	h.check(t)
	for _, r := range w.replicas() {
		failIf(t, !slices.Contains(pids, r.PID), "replica %s ended", r.ID)
	}
	if *full && *attacksPage != "" {
		writeAttacks(t, *attacksPage, results)
	}
}

// attacked attacks the master, and returns what came of it.
func (w *world) attacked(t *testing.T, h *honest, trial attackTrial, number int, tls string) attackResult {
	t.Helper()
	quiet := time.Second
	if *full {
		quiet = 10 * time.Second
	}
	master := w.masterByMetrics(t)
	result := attackResult{trial: trial, before: h.watched(t, master, quiet), idle: readingOf(t, master)}
	var children []child
	for n := range trial.children {
		children = append(children, w.childBy(t, task{
			Do: "attack", Attack: trial.name, Target: master.Client, Number: 1 + 10*number + n, Clients: trial.size, Calls: trial.calls, Lease: trial.lease, Lock: w.path("watched"),
			Files: []string{filepath.Join(tls, "ca.crt"), filepath.Join(tls, "client-attacker.crt"), filepath.Join(tls, "client-attacker.key")},
		}, startNicely))
	}
	if trial.name == "slow readers" {
		children[0].waitNote("ready", 0, time.Minute)
	}
	used := func() (attackers, replicas time.Duration) {
		for _, c := range children {
			attackers += cpu(t, c.cmd.Process.Pid)
		}
		for _, r := range w.replicas() {
			replicas += cpu(t, r.PID)
		}
		return attackers, replicas
	}
	began := time.Now()
	attackers, replicas := used()
	h.begin()
	look := 0
	for limit := began.Add(5 * time.Minute); time.Since(began) < trial.lasts || result.done == 0 || trial.until != nil && !trial.until(result.done); {
		stopIf(t, time.Now().After(limit), "after %v the attack has done %d", time.Since(began), result.done)
		if result.peak.memory = max(result.peak.memory, rss(t, master.PID)); look%looksPerReading == 0 {
			result.peak = result.peak.atLeast(readingOf(t, master))
		}
		look++
		result.done, result.rejected = 0, 0
		for _, c := range children {
			all := c.notes()
			stopIf(t, !c.running(), "an attacker has ended: %s", &c.stderr)
			if len(all) > 0 {
				result.done, result.rejected = result.done+all[len(all)-1].Done, result.rejected+all[len(all)-1].Rejected
			}
		}
		time.Sleep(betweenLooks)
	}
	result.in = h.end()
	attackersNow, replicasNow := used()
	took := time.Since(began).Seconds()
	result.attackers, result.replicas = (attackersNow-attackers).Seconds()/took, (replicasNow-replicas).Seconds()/took
	for _, c := range children {
		c.signal(syscall.SIGKILL)
		<-c.done
	}
	result.recovered = w.recovered(t, master, result.idle)
	result.after = h.watched(t, master, quiet)
	t.Logf("%d done and %d rejected, by %.2f of a core; replicas took %.2f; before: %v; during: %v; after: %v; the master idle: %+v, at most: %+v, of a budget of %d MiB; as before after %v",
		result.done, result.rejected, result.attackers, result.replicas, result.before, result.in, result.after, result.idle, result.peak, result.budget()>>20, result.recovered.Round(time.Second/10))
	return result
}

// startNicely starts an attacker that takes what processor time is left.
func startNicely(cmd *exec.Cmd) error {
	nice, err := exec.LookPath("nice")
	if err != nil {
		return err
	}
	cmd.Args = append([]string{nice, "-n", "19"}, cmd.Args...)
	cmd.Path = nice
	return cmd.Start()
}

// recovered waits until the master holds nothing for attackers any more, and returns how long that took.
func (w *world) recovered(t *testing.T, master replica, idle reading) time.Duration {
	t.Helper()
	const spare = 300 // that the server of frames keeps, to run calls that come
	began := time.Now()
	for {
		now := readingOf(t, master)
		if now.connections <= idle.connections && now.held <= 2*idle.held+64<<10 && now.sessions <= idle.sessions && now.goroutines <= idle.goroutines+spare {
			return time.Since(began)
		}
		if time.Since(began) > 3*time.Minute {
			t.Errorf("after %v the master has %+v; before the attack it had %+v", time.Since(began), now, idle)
			return time.Since(began)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// check compares what came of an attack with what may.
func (r attackResult) check(t *testing.T) {
	t.Helper()
	if r.peak.memory > r.budget() {
		t.Errorf("the master took %d MiB, of a budget of %d MiB", r.peak.memory>>20, r.budget()>>20)
	}
	failIf(t, r.done == 0, "nothing was attacked")
	if !*full {
		return // other tests run beside
	}
	for _, s := range r.slowed() {
		if !s.holds() {
			t.Errorf("%s took %v during the attack, with a 99th percentile of %v; without %v or %v, and %v or %v",
				s.what, s.in.p(50), s.in.p(99), s.before.p(50), s.after.p(50), s.before.p(99), s.after.p(99))
		}
	}
}

// tolerable is a 99th percentile that an attack may always bring about. Where five replicas and the attackers share two processors, some
// milliseconds are the time that they wait for each other.
const tolerable = 20 * time.Millisecond

// slowed is what one operation of the honest client takes.
type slowed struct {
	what              string
	before, in, after latencies
}

func (r attackResult) slowed() []slowed {
	return []slowed{{"lock+unlock", r.before.locks, r.in.locks, r.after.locks}, {"read", r.before.reads, r.in.reads, r.after.reads}}
}

// growth returns how many times as long a percentile is during an attack as the longer one of those before and after.
func (s slowed) growth(percent int) float64 {
	return float64(s.in.p(percent)) / float64(max(s.before.p(percent), s.after.p(percent)))
}

// holds reports whether the operation keeps the limits that docs/attacks.md names.
func (s slowed) holds() bool {
	return s.growth(50) <= 1.5 && (s.growth(99) <= 2 || s.in.p(99) <= tolerable)
}

func (r reading) atLeast(o reading) reading {
	return reading{
		memory: max(r.memory, o.memory), connections: max(r.connections, o.connections), held: max(r.held, o.held),
		sessions: max(r.sessions, o.sessions), goroutines: max(r.goroutines, o.goroutines),
	}
}

// readingOf asks a replica.
func readingOf(t *testing.T, r replica) reading {
	t.Helper()
	at := metrics(t, r, "chubby_client_connections", "chubby_client_held_bytes", "chubby_sessions", "go_goroutines")
	return reading{memory: rss(t, r.PID), connections: at[0], held: at[1], sessions: at[2], goroutines: at[3]}
}

// masterByMetrics returns the master, as the replicas' own pages tell.
func (w *world) masterByMetrics(t *testing.T) replica {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, r := range w.replicas() {
			if metric(t, r, "chubby_master") == 1 {
				return r
			}
		}
	}
	t.Fatal("there is no master")
	return replica{}
}

// writeAttacks writes the page about attacks.
func writeAttacks(t *testing.T, file string, results []attackResult) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `<!-- Written by make attacks; do not edit. -->

# Attacks

What strangers, and a principal that means ill, can do to a cell, measured on %s: five replicas with TLS and the default
configuration, the attackers and an honest client on one machine of %d processors (%s/%s, %s). What bounds them is in
[design](design.md#what-bounds-the-master), why so in [adr 34](adr/0034-rates-are-bounded-at-the-door.md).

The honest client has 20 sessions, locks and unlocks a lock a hundred times a second, and reads a file as often; a latency counts from when the
operation was due. It is another principal than the attackers, and comes from another address. Each attack is aimed at the master, from five addresses for each process, and lasts
15 seconds or until it has done all; before and after the client is measured for 10 seconds; the master's metrics are read every two seconds all the time. Attackers run with the lowest priority (nice 19), as they would be on machines of
their own; what they and the five replicas take of the processors is in the table. **A median may grow by half, and a 99th percentile may double, against
the greater of those before and after, or reach 20 ms; nothing may end; memory may reach its budget.**

| attack | done | refused or closed | attackers, cores | replicas, cores |
|---|--:|--:|--:|--:|
`, time.Now().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %d | %d | %.2f | %.2f |\n", r.trial.what, r.done, r.rejected, r.attackers, r.replicas)
	}
	b.WriteString("\n## The honest client\n\n99th percentiles (medians in brackets).\n\n| attack | operation | before | during | after | during : without | |\n|---|---|--:|--:|--:|--:|---|\n")
	for _, r := range results {
		for _, row := range r.slowed() {
			verdict := "holds"
			if !row.holds() {
				verdict = "**does not hold**"
			}
			fmt.Fprintf(&b, "| %s | %s | %v (%v) | %v (%v) | %v (%v) | %.2f | %s |\n", r.trial.name, row.what,
				row.before.p(99), row.before.p(50), row.in.p(99), row.in.p(50), row.after.p(99), row.after.p(50), row.growth(99), verdict)
		}
	}
	b.WriteString(`
## The master

Its budget is what it takes without attackers, twice (since garbage is collected when memory has doubled) 50 KB for each connection, 4 KB for each session and
what it holds for calls, 256 MiB for events that a principal does not fetch, and 64 MiB. How soon connections, sessions and what is held are as before depends on leases: those of attackers' sessions
were 60 seconds.

| attack | MiB before | at most | budget | connections at most | sessions at most | held for calls at most, MiB | as before after |
|---|--:|--:|--:|--:|--:|--:|--:|
`)
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %.1f | %v |\n", r.trial.name, r.idle.memory>>20, r.peak.memory>>20, r.budget()>>20,
			r.peak.connections, r.peak.sessions, float64(r.peak.held)/(1<<20), r.recovered.Round(100*time.Millisecond))
	}
	ended := "No session and no replica ended, no call failed, and the master stayed the master."
	if t.Failed() {
		ended = "**Not everything holds**: the rows above, and the output of the test, say what does not."
	}
	fmt.Fprintf(&b, "\n%s\n", ended)
	noErr(t, os.WriteFile(file, []byte(b.String()), 0o644))
}

package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

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
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

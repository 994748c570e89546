package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/misuse"
)

// lintFinding is what the test reads of a finding.
type lintFinding struct {
	Rule, Session, Principal, Path string
	PID, Count                     int
}

// lint runs chubbyctl lint, which has found something if it exits with 3.
func (w *world) lint(args ...string) (found []lintFinding) {
	w.t.Helper()
	r := w.do(append([]string{"lint", "-o", "json", "--most", "100"}, args...)...)
	var report struct {
		Findings []lintFinding
		More     int
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.More > 0 {
		w.t.Fatalf("lint printed %q, %q: %v", r.out, r.err, err)
	}
	if want := map[bool]int{true: 3, false: 0}[len(report.Findings) > 0]; r.code != want {
		w.t.Errorf("lint has found %d things, and exits with %d", len(report.Findings), r.code)
	}
	return report.Findings
}

// Each misuse is produced by a process of its own, and lint names that process, and the rule that it breaks, and no other rule. A
// process that is busy in a proper manner is not named.
func TestEveryMisuseIsNamed(t *testing.T) {
	w := start(t)
	dir := w.path("misuse")
	w.must("mkdir", dir)
	if found := w.lint(); len(found) > 0 {
		t.Fatalf("in a new cell lint has found %+v", found)
	}
	began := time.Now()
	processes := map[string]child{}
	for name := range misusers() {
		c := w.child(t, task{Do: "misuse", Misuse: name, Watch: dir})
		processes[name] = c
		defer func() { _ = c.cmd.Process.Kill() }()
	}
	forgetful := processes[misuse.Abandoned.String()]
	forgetful.waitFor("all open", readyLimit)
	if err := forgetful.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	named := func(f lintFinding) bool { // by the process, or the principal
		c, ok := processes[f.Rule]
		if f.Session == "" {
			return ok && f.Principal == f.Rule
		}
		return ok && f.PID == c.cmd.Process.Pid && f.Principal == f.Rule
	}
	var found []lintFinding
	for limit := began.Add(3 * time.Minute); ; time.Sleep(time.Second) {
		found = w.lint()
		var missing []string
		for _, m := range misuse.Kinds() {
			if !slices.ContainsFunc(found, func(f lintFinding) bool { return f.Rule == m.String() && named(f) }) {
				missing = append(missing, m.String())
			}
		}
		if len(missing) == 0 {
			t.Logf("all are named after %v", time.Since(began))
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("lint does not name %q; it has found\n%+v", missing, found)
		}
	}
	for _, f := range found {
		if !named(f) {
			t.Errorf("lint names a process, or a rule, that is not to be named: %+v", f)
		}
		if f.Path != "" && !strings.HasPrefix(f.Path, dir+"/"+f.Rule) {
			t.Errorf("it is about another path: %+v", f)
		}
	}
	for name, c := range processes {
		if name != misuse.Abandoned.String() && !c.running() {
			t.Errorf("%s has ended: %s", name, &c.stderr)
		}
	}
	w.checkLintFlags(t, dir, found)
}

// checkLintFlags tries what narrows a report down, and that it says what to do.
func (w *world) checkLintFlags(t *testing.T, dir string, all []lintFinding) {
	t.Helper()
	polls := func(f lintFinding) bool { return f.Rule == misuse.Polling.String() }
	poller := all[slices.IndexFunc(all, polls)]
	for _, args := range [][]string{
		{"--rule", "polling"}, {"--session", poller.Session}, {"--principal", "polling"}, {dir + "/polling"},
	} {
		if found := w.lint(args...); len(found) != 1 || !polls(found[0]) {
			t.Errorf("lint %s has found %+v", strings.Join(args, " "), found)
		}
	}
	if found := w.lint("--principal", "none"); len(found) > 0 {
		t.Errorf("who misuses nothing is named: %+v", found)
	}
	if found := w.lint(dir); len(found) == 0 || slices.ContainsFunc(found, func(f lintFinding) bool { return f.Path == "" }) {
		t.Errorf("below %s lint has found %+v", dir, found)
	}
	text := w.do("lint", "--rule", "polling")
	for _, want := range []string{"polling", poller.Session, fmt.Sprintf("pid %d", poller.PID), dir + "/polling", "docs/misuse.md#polling", misuse.Polling.Instead()} {
		if !strings.Contains(text.out, want) {
			t.Errorf("lint does not say %q:\n%s", want, text.out)
		}
	}
}

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ordinaryRounds is how often drills are repeated in make test.
const ordinaryRounds = 2

// rounds is how often drills are repeated; make acceptance sets more than an ordinary test run.
var rounds = flag.Int("rounds", ordinaryRounds, "how often to repeat the drills that are repeated")

// When the master is killed, holders of locks go on undisturbed, others can take locks within two
// seconds, and nothing that was acknowledged is lost.
func TestMasterKilled(t *testing.T) {
	w := start(t, "--no-restart")
	holder := w.ctl("-v", "acquire", "/ls/local/held", "--", "sh", "-c", "echo held; trap 'echo disturbed' TERM INT HUP; while :; do sleep 0.1; done")
	holder.waitFor("held", 20*time.Second)
	started := map[string]*process{}
	var took []time.Duration
	for i := range *rounds {
		w.must("put", "/ls/local/written", fmt.Sprint(i))
		master := w.status().Master
		began := time.Now()
		if p := started[master]; p != nil {
			w.kill9(p.cmd.Process.Pid)
		} else {
			w.kill9(w.replicas()[master].PID)
		}
		w.must("acquire", fmt.Sprintf("/ls/local/round-%d", i), "--", "true")
		took = append(took, time.Since(began))
		if got := w.must("cat", "/ls/local/written"); got != fmt.Sprint(i) {
			t.Fatalf("round %d: the file says %q", i, got)
		}
		started[master] = w.serve(master)
		w.waitHealthy(5)
	}
	slices.Sort(took)
	t.Logf("a lock taken through chubbyctl after kill -9 of the master: median %v, all %v", took[len(took)/2], took)
	if took[len(took)/2] > patience(2*time.Second) {
		t.Errorf("the median is %v, want at most 2 s", took[len(took)/2])
	}
	if !holder.running() || strings.Contains(holder.stdout.String(), "disturbed") {
		t.Errorf("the holder's CMD was disturbed\nstdout: %s\nstderr: %s", &holder.stdout, &holder.stderr)
	}
	for i := range *rounds {
		w.must("stat", fmt.Sprintf("/ls/local/round-%d", i))
	}
	if err := holder.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// waitHealthy waits until that many replicas have caught up.
func (w *world) waitHealthy(n int) {
	w.t.Helper()
	for end := time.Now().Add(patience(30 * time.Second)); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		healthy := 0
		s := w.status()
		for _, r := range s.Replicas {
			if r.Healthy && r.Applied > 0 {
				healthy++
			}
		}
		if healthy >= n {
			return
		}
	}
	w.t.Fatalf("fewer than %d replicas are healthy", n)
}

// When all five replicas are killed and started again, everything is as it was, and a holder that
// kept running is still the holder.
func TestAllKilled(t *testing.T) {
	besideOthers(t)
	w := start(t)
	w.must("put", "/ls/local/file", "before")
	holder := w.ctl("-o", "json", "acquire", "/ls/local/held")
	holder.waitFor("\n", 20*time.Second)
	var line struct {
		Sequencer string
		Token     uint64
		Session   string
	}
	if err := json.Unmarshal([]byte(holder.stdout.String()), &line); err != nil {
		t.Fatal(err)
	}
	running := w.ctl("acquire", "/ls/local/running", "--", "sh", "-c", "echo held; trap 'echo disturbed' TERM INT HUP; while :; do sleep 0.1; done")
	running.waitFor("held", 20*time.Second)
	for _, r := range w.replicas() {
		w.kill9(r.PID)
	}
	began := time.Now()
	read := w.do("--timeout", "30s", "cat", "/ls/local/file")
	for read.code == 69 && time.Since(began) < patience(30*time.Second) { // nothing listens yet, and a command says so at once
		read = w.do("--timeout", "30s", "cat", "/ls/local/file")
	}
	if read.code != 0 || read.out != "before" {
		t.Fatalf("cat: exit %d, %q\n%s", read.code, read.out, read.err)
	}
	t.Logf("served again %v after kill -9 of all five (restarted after 2 s)", time.Since(began).Round(time.Millisecond))
	if r := w.do("sequencer", "check", line.Sequencer); r.code != 0 {
		t.Errorf("the holder's sequencer: exit %d, %s", r.code, r.err)
	}
	locks := w.must("-o", "json", "locks", "/ls/local/held")
	if !strings.Contains(locks, line.Session) || !strings.Contains(locks, fmt.Sprint(line.Token)) {
		t.Errorf("the lock's holder is another: %s", locks)
	}
	if !holder.running() || !running.running() || strings.Contains(running.stdout.String(), "disturbed") {
		t.Errorf("a holder was disturbed\n%s%s\n%s%s", &holder.stdout, &holder.stderr, &running.stdout, &running.stderr)
	}
	if err := running.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Two replicas may stop. Of three that stop, calls wait; then they say so, with
// nothing half-done; and when one comes back in time, they go on.
func TestMajorityStopped(t *testing.T) {
	besideOthers(t)
	w := start(t, "--no-restart")
	w.must("put", "/ls/local/file", "one")
	all := w.replicas()
	for _, id := range []string{"r1", "r2"} {
		w.kill9(all[id].PID)
	}
	w.must("put", "/ls/local/file", "two")
	if got := w.must("cat", "/ls/local/file"); got != "two" {
		t.Errorf("with two stopped the file says %q", got)
	}
	w.kill9(all["r3"].PID)
	began := time.Now()
	r := w.do("--timeout", "3s", "put", "/ls/local/file", "three")
	if r.code != 69 || time.Since(began) > patience(6*time.Second) || r.err == "" {
		t.Errorf("with three stopped: exit %d after %v, stderr %q; want 69 after 3 s, and why", r.code, time.Since(began), r.err)
	}
	waiting := w.ctl("--timeout", patience(20*time.Second).String(), "put", "/ls/local/other", "four")
	back := w.serve("r3")
	if code := waiting.wait(20 * time.Second); code != 0 {
		t.Errorf("when one came back: exit %d\n%s", code, &waiting.stderr)
	}
	if got := w.must("cat", "/ls/local/other"); got != "four" {
		t.Errorf("the file says %q", got)
	}
	if got := w.must("cat", "/ls/local/file"); got != "two" && got != "three" {
		t.Errorf("the file says %q, which nobody wrote", got)
	}
	if err := back.end(); err != nil {
		t.Error(err)
	}
}

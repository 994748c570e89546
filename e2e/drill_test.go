package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// drillReport is what chubbyctl drill --yes -o json says.
type drillReport struct {
	Done, Interrupted bool
	WithinLimit       bool    `json:"within_limit"`
	NoAnswerS         float64 `json:"no_answer_s"`
	Calls             int
	Events            []struct{ What string }
	MasterBefore      string                                    `json:"master_before"`
	MasterAfter       string                                    `json:"master_after"`
	EpochBefore       uint64                                    `json:"epoch_before"`
	EpochAfter        *uint64                                   `json:"epoch_after"`
	SessionsGone      struct{ List []struct{ Session string } } `json:"sessions_gone"`
	LocksBefore       int                                       `json:"locks_before"`
	LocksKept         int                                       `json:"locks_kept"`
	LocksChanged      struct {
		List []struct {
			Path, Why string
			AfterS    *float64 `json:"after_s"`
			Holders   []struct{ Session string }
		}
	} `json:"locks_changed"`
	Slow *struct {
		Writes   int
		LongestS float64 `json:"longest_wait_s"`
	} `json:"slow_client"`
}

// drill does a drill, which is to end with that exit code.
func (w *world) drill(code int, args ...string) (r drillReport) {
	w.t.Helper()
	w.awaitMaster()
	p := w.ctl(append([]string{"-o", "json", "--timeout", "40s", "drill"}, args...)...)
	got := p.wait(3 * time.Minute)
	if err := json.Unmarshal([]byte(p.stdout.String()), &r); err != nil || got != code {
		w.t.Fatalf("drill %v: exit %d, want %d: %v\n%s%s", args, got, code, err, &p.stdout, &p.stderr)
	}
	return r
}

// awaitMaster waits until the cell has a master.
func (w *world) awaitMaster() {
	w.t.Helper()
	for end := time.Now().Add(patience(30 * time.Second)); w.do("--timeout", "2s", "cell", "status").code != 0; {
		stopIf(w.t, time.Now().After(end), "the cell has no master")
	}
}

// Drills say first whom they would hit, and then do it and say what they did; clients that work beside them keep their locks. One on
// whose lock another waits loses it when its session is ended, and is told.
func TestDrills(t *testing.T) {
	besideOthers(t)
	w := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	owner := w.client(client.Config{})
	kept := must(w.handle(ctx, owner, "/ls/local/kept").Acquire(ctx, api.Exclusive, client.Reason("the witness")))(t)

	for _, args := range [][]string{{"failover"}, {"failover", "--hard"}, {"outage", "20s"}, {"session-loss", owner.Session().String()}, {"slow-client"}} {
		before := w.status()
		r := w.do(append([]string{"-o", "json", "drill"}, args...)...)
		var plan struct {
			Done      bool
			Locks     int                                    `json:"locks_held"`
			Unchecked struct{ List []struct{ Path string } } `json:"without_sequencer"`
			GivenUp   struct{ List []struct{ Path string } } `json:"given_up"`
			Session   *struct {
				LocksHeld []string `json:"locks_held"`
			}
		}
		if err := json.Unmarshal([]byte(r.out), &plan); err != nil || r.code != 2 || plan.Done {
			t.Errorf("drill %v without --yes: exit %d, %v\n%s%s", args, r.code, err, r.out, r.err)
		}
		if after := w.status(); after.Epoch != before.Epoch {
			t.Errorf("drill %v without --yes did something: epoch %d, then %d", args, before.Epoch, after.Epoch)
		}
		if plan.Locks != 1 || len(plan.Unchecked.List) != 1 || plan.Unchecked.List[0].Path != "/ls/local/kept" {
			t.Errorf("drill %v would hit %+v", args, plan)
		}
		if text := w.do(append([]string{"drill"}, args...)...); args[0] != "slow-client" && !strings.Contains(text.out, "/ls/local/kept") {
			t.Errorf("drill %v does not name the lock:\n%s", args, text.out)
		}
	}
	failIf(t, w.must("sequencer", "check", kept.Sequencer().String()) == "", "the sequencer is not valid")
	if r := w.do("drill", "failover"); strings.Contains(r.out, "/ls/local/kept") {
		t.Errorf("a sequencer of the lock was shown, and it is listed:\n%s", r.out)
	}

	for _, args := range [][]string{{"failover", "--limit", "30s"}, {"failover", "--hard", "--limit", "35s"}, {"outage", "3s", "--limit", "35s"}} {
		r := w.drill(0, append(args, "--yes", "--reason", "a test")...)
		if !r.Done || r.EpochAfter == nil || *r.EpochAfter <= r.EpochBefore || r.MasterAfter == "" || r.MasterAfter == r.MasterBefore || r.Calls == 0 || !r.WithinLimit {
			t.Errorf("drill %v: %+v", args, r)
		}
		if r.LocksBefore != 1 || r.LocksKept != 1 || len(r.LocksChanged.List) > 0 || len(r.SessionsGone.List) > 0 || kept.Err() != nil {
			t.Errorf("drill %v: %+v; the lock: %v", args, r, kept.Err())
		}
		failIf(t, args[0] == "outage" && r.NoAnswerS < 2.9, "an outage of 3s without an answer for %vs", r.NoAnswerS)
	}
	if r := w.drill(4, "failover", "--hard", "--yes", "--limit", "1ms"); r.WithinLimit || !r.Done {
		t.Errorf("longer than --limit: %+v", r)
	}

	if r := w.drill(0, "slow-client", "--yes", "--for", "4s", "--limit", "35s"); r.Slow == nil || r.Slow.Writes < 2 || r.Slow.LongestS < 1 || kept.Err() != nil {
		t.Errorf("a slow client: %+v", r)
	}

	next := w.client(client.Config{})
	passed := make(chan error, 1)
	h := w.handle(ctx, next, "/ls/local/kept")
	go func() {
		_, err := h.Acquire(ctx, api.Exclusive)
		passed <- err
	}()
	go func() { // the owner's work stops when it is told
		<-kept.Context().Done()
		_ = kept.Release(ctx)
	}()
	r := w.drill(0, "session-loss", owner.Session().String(), "--yes", "--reason", "a test", "--limit", "60s")
	report(t, <-passed)
	l := r.LocksChanged.List
	if len(l) != 1 || l[0].AfterS == nil || len(l[0].Holders) != 1 || l[0].Holders[0].Session != next.Session().String() {
		t.Fatalf("who has the lock: %+v", r)
	}
	if gone := r.SessionsGone.List; len(gone) != 1 || gone[0].Session != owner.Session().String() {
		t.Errorf("which sessions have ended: %+v", r)
	}
	if kept.Err() == nil || l[0].Why == "" {
		t.Errorf("the lock of the session that was ended: %v; %+v", kept.Err(), r)
	}
}

// The status of a cell shows an outage; there is one at a time; and Ctrl-C and the death of chubbyctl or of the
// master each end it in seconds.
func TestDrillOutageEnds(t *testing.T) {
	besideOthers(t)
	w := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kept := must(w.handle(ctx, w.client(client.Config{}), "/ls/local/kept").Acquire(ctx, api.Exclusive))(t)
	for _, how := range []string{"SIGINT", "SIGKILL", "the master"} {
		w.awaitMaster()
		before := w.status()
		p := launch(t, command(bin("chubbyctl"), "--servers", w.servers(), "-o", "json", "--timeout", "40s", "drill", "outage", "45s", "--yes"), (*exec.Cmd).Start)
		for end := time.Now().Add(patience(time.Minute)); !strings.Contains(w.do("cell", "status").out, "A drill goes on: outage"); {
			if time.Now().After(end) {
				t.Fatalf("the drill is not shown: %s%s", w.do("cell", "status").out, &p.stderr)
			}
		}
		w.do("--timeout", "1s", "put", "/ls/local/x", "y").exits(t, 69, "in an outage, put")
		failIf(t, w.do("--timeout", "1s", "drill", "failover", "--yes").code == 0, "a second drill began")
		began := time.Now()
		switch how {
		case "SIGINT":
			_ = p.cmd.Process.Signal(syscall.SIGINT)
			if code := p.wait(30 * time.Second); code != 130 || !strings.Contains(p.stdout.String(), `"interrupted":true`) {
				t.Errorf("after Ctrl-C: exit %d\n%s%s", code, &p.stdout, &p.stderr)
			}
		case "SIGKILL":
			_ = p.cmd.Process.Kill()
		case "the master":
			noErr(t, syscall.Kill(w.replicas()[before.Master].PID, syscall.SIGKILL))
		}
		w.must("put", "/ls/local/x", fmt.Sprint(how))
		if took := time.Since(began); took > 25*time.Second { // of 45 s
			t.Errorf("%s: the cell served after %v", how, took)
		}
		if how == "the master" {
			if code := p.wait(2 * time.Minute); code != 76 || !strings.Contains(p.stderr.String(), "before its time") {
				t.Errorf("after the death of the master: exit %d\n%s%s", code, &p.stdout, &p.stderr)
			}
		}
		failIf(t, kept.Err() != nil, "%s: the lock: %v", how, kept.Err())
		if after := w.status(); after.Epoch <= before.Epoch {
			t.Errorf("%s: epoch %d, then %d", how, before.Epoch, after.Epoch)
		}
	}
}

// A planned hand-over, by chubbyctl cell transfer or because the master is stopped by SIGTERM, disturbs no session:
// locks stay held, no session is in jeopardy, and writes and reads stop for a fifth of a second at most.
func TestTransfer(t *testing.T) {
	w := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
	defer cancel()
	var jeopardies atomic.Int64
	cfg := client.Config{OnState: func(client.StateChange) { jeopardies.Add(1) }}
	if !alone() {
		cfg.Lease = api.MaxLease // for a disk that takes seconds
	}
	c := w.client(cfg)
	held := must(w.handle(ctx, c, "/ls/local/lock").Acquire(ctx, api.Exclusive))(t)
	h := w.handle(ctx, w.client(client.Config{NoCache: true}), "/ls/local/file")
	for _, by := range []string{"transfer", "transfer", "transfer", "SIGTERM"} {
		for _, work := range []struct {
			name string
			do   func() error
		}{
			{"write", func() error { _, err := h.SetContents(ctx, []byte("x")); return err }},
			{"read", func() error { _, _, err := h.Contents(ctx); return err }},
		} {
			longest, took := w.whileHandedOver(by, work.do)
			t.Logf("%s: the longest %s took %v, the hand-over %v", by, work.name, longest.Round(time.Millisecond), took.Round(time.Millisecond))
			limit := 200 * time.Millisecond
			if !*full {
				limit *= 5 // for the race detector
			}
			failIf(t, longest > patience(limit), "%s: a %s took %v", by, work.name, longest)
		}
	}
	if held.Err() != nil || jeopardies.Load() > 0 {
		t.Errorf("the lock: %v; the session changed its state %d times", held.Err(), jeopardies.Load())
	}
}

// whileHandedOver works on while the master hands over, and returns how long the
// longest piece of work took, and how long it was until another was the master.
func (w *world) whileHandedOver(by string, work func() error) (longest, took time.Duration) {
	w.t.Helper()
	stop, done := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for {
			select {
			case <-stop:
				done <- longest
				return
			default:
			}
			began := time.Now()
			if err := work(); err != nil {
				w.t.Error(err)
				done <- longest
				return
			}
			longest = max(longest, time.Since(began))
		}
	}()
	before := w.status()
	began := time.Now()
	if by == "transfer" {
		w.must("cell", "transfer")
	} else if err := syscall.Kill(w.replicas()[before.Master].PID, syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	for after := before; after.Epoch <= before.Epoch || after.Master == ""; {
		text := w.do("-o", "json", "cell", "status").out // it fails while there is no master
		if err := json.Unmarshal([]byte(text), &after); err != nil || time.Since(began) > patience(10*time.Second) {
			w.t.Fatalf("%s is still the master: %v %s", before.Master, err, text)
		}
	}
	took = time.Since(began)
	close(stop)
	return <-done, took
}

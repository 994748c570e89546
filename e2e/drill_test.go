package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
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
			After     []struct{ Session string }
		}
	} `json:"locks_changed"`
	Loss *struct {
		GoneS    *float64 `json:"gone_after_s"`
		Returned *string  `json:"returned_as"`
		Locks    []struct {
			Path    string
			AfterS  *float64 `json:"after_s"`
			Holders []struct{ Session string }
		}
	} `json:"session_loss"`
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
		if time.Now().After(end) {
			w.t.Fatal("the cell has no master")
		}
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
	kept, err := w.handle(ctx, owner, "/ls/local/kept").Acquire(ctx, api.Exclusive, client.Reason("the witness"))
	if err != nil {
		t.Fatal(err)
	}

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
	if valid := w.must("sequencer", "check", kept.Sequencer().String()); valid == "" {
		t.Error("the sequencer is not valid")
	}
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
		if args[0] == "outage" && r.NoAnswerS < 2.9 {
			t.Errorf("an outage of 3s without an answer for %vs", r.NoAnswerS)
		}
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
	if err := <-passed; err != nil {
		t.Error(err)
	}
	if l := r.Loss; l == nil || l.GoneS == nil || len(l.Locks) != 1 || l.Locks[0].AfterS == nil || len(l.Locks[0].Holders) != 1 || l.Locks[0].Holders[0].Session != next.Session().String() {
		t.Errorf("who has the lock: %+v", r)
	}
	if kept.Err() == nil || len(r.LocksChanged.List) != 1 || r.LocksChanged.List[0].Why == "" {
		t.Errorf("the lock of the session that was ended: %v; %+v", kept.Err(), r)
	}
}

// The status of a cell tells of an outage; there is one at a time; and Ctrl-C and the death of chubbyctl or of the
// master each end it in seconds.
func TestDrillOutageEnds(t *testing.T) {
	besideOthers(t)
	w := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kept, err := w.handle(ctx, w.client(client.Config{}), "/ls/local/kept").Acquire(ctx, api.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"SIGINT", "SIGKILL", "the master"} {
		w.awaitMaster()
		before := w.status()
		p := launch(t, command(bin("chubbyctl"), "--servers", w.servers(), "-o", "json", "--timeout", "40s", "drill", "outage", "45s", "--yes"), (*exec.Cmd).Start)
		for end := time.Now().Add(patience(time.Minute)); !strings.Contains(w.do("cell", "status").out, "A drill goes on: outage"); {
			if time.Now().After(end) {
				t.Fatalf("the drill is not shown: %s%s", w.do("cell", "status").out, &p.stderr)
			}
		}
		if r := w.do("--timeout", "1s", "put", "/ls/local/x", "y"); r.code != 69 {
			t.Errorf("in an outage, put: exit %d %s", r.code, r.err)
		}
		if r := w.do("--timeout", "1s", "drill", "failover", "--yes"); r.code == 0 {
			t.Error("a second drill began")
		}
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
			if err := syscall.Kill(w.replicas()[before.Master].PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
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
		if kept.Err() != nil {
			t.Errorf("%s: the lock: %v", how, kept.Err())
		}
		if after := w.status(); after.Epoch <= before.Epoch {
			t.Errorf("%s: epoch %d, then %d", how, before.Epoch, after.Epoch)
		}
	}
}

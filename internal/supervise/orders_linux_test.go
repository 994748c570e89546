package supervise

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A guardian that is stopped reads no orders, and its pipe fills up. chubbyctl keeps the deadline nevertheless, and
// ends both then.
func TestOrdersDoNotBlock(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	c.KillAfter, c.Margin = 200*time.Millisecond, 200*time.Millisecond
	p := start(t, c)
	f.line(t)
	if err := p.guardian.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ordered := make(chan struct{})
	go func() {
		defer close(ordered)
		for range 10_000 { // more than a pipe holds
			p.Signal(unix.SIGWINCH)
		}
		p.Stop()
	}()
	select {
	case <-ordered:
	case <-time.After(bound):
		_ = p.guardian.Process.Kill()
		t.Fatal("an order waits for a guardian that reads none")
	}
	if got := wait(t, p); got != (Result{Code: 137, Cut: true}) {
		t.Errorf("result %+v, want cut by SIGKILL", got)
	}
	f.ended(t)
}

// Notices are not read, because the terminal is stopped (Ctrl-S) or a pager shows another page: the command ends in
// time nevertheless.
func TestNoticesDoNotBlock(t *testing.T) {
	f := newFIFO(t)
	c := shell(stubborn, f.name)
	c.KillAfter, c.Margin = 200*time.Millisecond, 200*time.Millisecond
	read := make(chan struct{})
	c.Notice = func(string) { <-read }
	p, err := Start(c, make(chan os.Signal, 8))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Wait()
	defer close(read)
	f.line(t)
	if err := p.guardian.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		f.ended(t)
	}()
	select {
	case <-gone:
	case <-time.After(bound):
		_ = p.guardian.Process.Kill()
		t.Error("the command outlives its time until somebody reads")
	}
}

// The command is asked to end once: many programs end at once when they are asked a second time.
func TestAskedToEndOnce(t *testing.T) {
	f := newFIFO(t)
	c := shell(`exec 5>"$1"; for i in 1 2 3 4 5 6 7 8 9 10; do (trap "" TERM; for j in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 3 5>&- & done; wait) 5>&- & done
trap 'echo term >&5' TERM; echo ready >&5; wait; wait; wait; exit 7`, f.name)
	c.KillAfter = bound // it ends by itself in three seconds; until then it may take a while to say that it was asked
	p := start(t, c)
	f.line(t)
	p.Stop()
	wait(t, p)
	if got, err := io.ReadAll(f.lines); err != nil || string(got) != "term\n" {
		t.Errorf("the command got %q (%v)", got, err)
	}
}

// A signal to the process group reaches its members, so only processes outside of it get one of their own.
func TestAudienceIsCountedOnce(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sleep 60 & setsid sh -c 'echo $$; exec sleep 60' & wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var outside int
	_, err = fmt.Fscanln(out, &outside)
	g := guardian{pid: cmd.Process.Pid}
	got, everybody := g.signalTargets(), family(g.pid)
	for _, pid := range []int{-g.pid, outside} {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = cmd.Wait() // it was killed
	if err != nil {
		t.Fatal(err)
	}
	if len(everybody) < 3 {
		t.Errorf("the family is %v, want the shell and two more", everybody)
	}
	if want := []int{-g.pid, outside}; !slices.Equal(got, want) {
		t.Errorf("the audience is %v, want %v", got, want)
	}
}

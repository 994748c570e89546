package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// The main goroutine of a program is on the main thread if it was locked to it
// while packages were initialized.
func init() { //nolint:gochecknoinits // later it is too late for that
	if len(os.Args) > 1 && os.Args[1] == "headless" {
		runtime.LockOSThread()
	}
}

// headless is a program whose main thread ends while its other threads go on, as
// those of a C program do after pthread_exit in main. /proc shows it in state
// Z. It has a child, and keeps the fifo open.
func headless(name string) {
	fifo, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		os.Exit(1)
	}
	child := exec.Command("sleep", "1000")
	child.Stdout = fifo
	if err := child.Start(); err != nil {
		os.Exit(1)
	}
	go func() {
		for !mainThreadEnded() {
			runtime.Gosched()
		}
		fmt.Fprintln(fifo, os.Getpid())
		select {} // until it is killed
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// mainThreadEnded reads from /proc whether this process is in state Z.
func mainThreadEnded() bool {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return false
	}
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')'):], []byte(") Z"))
}

// A descendant whose main thread has ended is not dead. It and its children are
// stopped like all others, when the command ends and when its time ends.
func TestHeadlessDescendants(t *testing.T) {
	const script = `setsid "$2" headless "$1" &
		trap 'exit 3' USR2; trap '' TERM; while :; do sleep 0.01; done`
	run := func(t *testing.T, then func(p *Process, ours *allowance)) Result {
		f := newFIFO(t)
		c := shell(script, f.name, os.Args[0])
		var ours allowance
		c.KillAfter, c.Allowed = 200*time.Millisecond, ours.left
		p := start(t, c)
		pid := number(t, f)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		then(p, &ours)
		result := wait(t, p)
		f.ended(t)
		return result
	}
	t.Run("the command ends", func(t *testing.T) {
		if got := run(t, func(p *Process, _ *allowance) { p.Signal(syscall.SIGUSR2) }); got != (Result{Code: 3}) {
			t.Errorf("result %+v, want 3, not cut", got)
		}
	})
	t.Run("its time ends", func(t *testing.T) {
		if got := run(t, func(_ *Process, ours *allowance) { ours.endsIn(time.Second) }); got != (Result{Code: 137, Cut: true}) {
			t.Errorf("result %+v, want cut by SIGKILL", got)
		}
	})
}

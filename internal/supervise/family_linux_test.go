package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processes that a command leaves still work under the lock, so they end before the lock is released.
func TestLeftoversAreStopped(t *testing.T) {
	f := newFIFO(t)
	var notices []string
	c := shell(`exec 5>"$1"; mkfifo "$1.go"
		setsid sh -c 'echo there >&5; echo go >"$0.go"; sleep 1000' "$1" & read line <"$1.go"; exit 3`, f.name)
	c.Notice = func(text string) { notices = append(notices, text) }
	p := start(t, c)
	f.line(t)
	if got := wait(t, p); got != (Result{Code: 3}) {
		t.Errorf("result %+v, want 3, not cut", got)
	}
	f.ended(t)
	if len(notices) != 1 || !strings.Contains(notices[0], "behind") {
		t.Errorf("notices %q, want one about what was left behind", notices)
	}
}

// A job whose output goes through a logger that is slower than the job: the logger reads everything before the lock is
// released, and nothing is said of it.
func TestLogOfAFailedJobIsWhole(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	c := shell("")
	c.Path, c.Args = "/bin/bash", []string{"bash", "-c", `exec > >(while read -r line; do printf "%(%T)T %s\n" -1 "$line"; done >"$1") 2>&1
		seq 1 3000; echo FATAL; exit 3`, "bash", log}
	c.KillAfter = bound
	c.Notice = func(text string) { t.Errorf("notice %q", text) }
	began := time.Now()
	if got := wait(t, start(t, c)); got != (Result{Code: 3}) {
		t.Errorf("result %+v, want 3, not cut", got)
	}
	if took := time.Since(began); took >= bound {
		t.Errorf("it took %v", took)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3001 || !strings.HasSuffix(lines[len(lines)-1], " FATAL") {
		t.Errorf("the log has %d lines, and ends with %q; want 3001 and FATAL", len(lines), lines[len(lines)-1])
	}
}

// What the command has left and does not end by itself is stopped at once by an interrupt, and when the time is over.
func TestLeftoversDoNotOutstay(t *testing.T) {
	for name, end := range map[string]func(*Process, *allowance){
		"interrupt": func(p *Process, _ *allowance) { p.Signal(unix.SIGINT) },
		"stop":      func(p *Process, _ *allowance) { p.Stop() },
		"its time":  func(_ *Process, ours *allowance) { ours.endsIn(plenty/2 + time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFIFO(t)
			c := shell(`exec 5>"$1"; echo $$ >&5; { trap 'echo asked >&5; exit' TERM; trap '' INT; while :; do sleep 0.01; done; } & exit 3`, f.name)
			c.KillAfter = plenty / 2
			var ours allowance
			c.Allowed = ours.left
			p := start(t, c)
			pid := number(t, f)
			for end := time.Now().Add(bound); unix.Kill(pid, 0) == nil && time.Now().Before(end); { // until the guardian has reaped it
			}
			end(p, &ours)
			if got := f.line(t); got != "asked" {
				t.Errorf("what is left %s", got)
			}
			if got := wait(t, p); got != (Result{Code: 3}) {
				t.Errorf("result %+v, want 3, not cut", got)
			}
		})
	}
}

// Each of these descendants forks and ends at once, so none is in a list of processes for long. They are gone
// when the command is reported gone.
func TestHoppingDescendants(t *testing.T) {
	const hop = `exec 5>"$1"; echo up >&5; f() { [ "$1" -gt 0 ] || exec sleep 60; f $(($1-1)) & exit 0; }; f $2 & exit 0`
	for _, hops := range []string{"2", "20", "50"} {
		for range 5 {
			f := newFIFO(t)
			c := shell(hop, f.name, hops)
			c.KillAfter = 200 * time.Millisecond
			p := start(t, c)
			f.line(t)
			wait(t, p)
			f.ended(t)
		}
	}
}

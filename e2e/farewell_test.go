package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell/celltest/processes"
)

// When CMD ends while the cell does not answer, chubbyctl ends with CMD's exit code as soon as the
// lease has run out, and at once after an interrupt.
func TestFarewellInAnOutage(t *testing.T) {
	besideOthers(t)
	w := start(t, "--replicas", "1")
	dir := t.TempDir()
	holder := func(name, lease string) *process {
		script := fmt.Sprintf("echo up; while [ ! -e %s ]; do sleep 0.05; done; echo over; exit 5", filepath.Join(dir, "go"))
		p := w.ctl("--timeout", "3m", "acquire", "/ls/local/"+name, "--lease", lease, "--lock-delay", "1m", "--", "sh", "-c", script)
		p.waitFor("up", 20*time.Second)
		return p
	}
	short, long := holder("short", "4s"), holder("long", "1m")
	for _, r := range w.replicas() {
		processes.Halt(t, r.PID)
		t.Cleanup(func() { _ = syscall.Kill(r.PID, syscall.SIGCONT) })
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := short.endsWithin(time.Minute); code != 5 {
		t.Errorf("after the end of the lease: exit %d, want 5", code)
	}
	long.waitFor("trying to release", 10*time.Second)
	if err := long.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := long.endsWithin(10 * time.Second); code != 5 {
		t.Errorf("after Ctrl-C: exit %d, want 5", code)
	}
}

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The six steps of the paper's election (Chubby §2.6), as the README has them:
// one of three is the primary and says so in the lock file; when it goes, so
// does the next.
func TestSixSteps(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../examples/election/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, campaign, _ := strings.Cut(string(source), "func campaign(")
	if lines := strings.Count(campaign, "\n"); lines >= 40 {
		t.Errorf("the election has %d lines, want less than 40", lines)
	}
	if !strings.Contains(string(readme), "func campaign("+campaign) {
		t.Error("the README does not show examples/election as it is")
	}
	program := filepath.Join(t.TempDir(), "election")
	if out, err := exec.Command("go", "build", "-o", program, "../examples/election").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	w := start(t)
	t.Setenv("CHUBBY_CELLS", "local="+w.servers())
	t.Setenv("CHUBBY_CONFIG", "/dev/null")
	for range 3 {
		cmd := exec.Command(program)
		p := &process{t: t, cmd: cmd, done: make(chan struct{})}
		cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_ = cmd.Wait() // its output is looked at
			close(p.done)
		}()
		t.Cleanup(p.stop)
		p.waitFor("primary: ", 20*time.Second)
		who := w.must("cat", "/ls/local/primary")
		if !strings.Contains(p.stdout.String(), "primary: "+who+", sequencer: ") {
			t.Errorf("the file says %q, the primary %q", who, &p.stdout)
		}
		_ = cmd.Process.Signal(syscall.SIGINT) // and the next is soon the primary
	}
}

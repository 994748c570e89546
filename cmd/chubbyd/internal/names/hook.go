package names

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/chubbylock/chubby/cell"
)

// Hook is the path of a program that publishes the replicas of a cell. It reads them as JSON from its standard input:
//
//	{"cell": "main", "replicas": [{"id": "r1", "client": "h1:7421"}, ...], "left": ["r0", ...]}
//
// and exits with 0 when clients find these replicas, and no longer those that have left. If it fails, its output is in the log.
// It gets no arguments, and the environment of the daemon without the daemon's own settings.
type Hook string

// Bounds of a hook.
const (
	maxHookOutput = 1 << 10         // bytes that are shown
	hookEnd       = 2 * time.Second // for what it started, when it has ended
)

// hookInput is what a hook reads.
type hookInput struct {
	Cell     string        `json:"cell"`
	Replicas []hookReplica `json:"replicas"`
	Left     []string      `json:"left"`
}

type hookReplica struct {
	ID     string `json:"id"`
	Client string `json:"client"`
}

// Publish runs the program. When ctx ends, it and what it has started are killed.
func (h Hook) Publish(ctx context.Context, p cell.Publication) error {
	in := hookInput{Cell: p.Cell, Replicas: []hookReplica{}, Left: append([]string{}, p.Left...)}
	for _, m := range p.Replicas {
		in.Replicas = append(in.Replicas, hookReplica{ID: m.ID, Client: m.Client})
	}
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var out tail
	cmd := exec.CommandContext(ctx, string(h))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(text, '\n')), &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookEnd
	cmd.Env = without(os.Environ(), "CHUBBYD_")
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.New("it did not end in time, and was killed")
		}
		return fmt.Errorf("run the hook %s: %w%s", string(h), err, out.text())
	}
	return nil
}

// without returns the variables whose names do not begin with prefix.
func without(environment []string, prefix string) (kept []string) {
	for _, v := range environment {
		if !strings.HasPrefix(v, prefix) {
			kept = append(kept, v)
		}
	}
	return kept
}

// tail keeps the end of what is written.
type tail struct {
	kept []byte
	cut  bool
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b[max(0, len(b)-maxHookOutput):]...)
	if over := len(t.kept) - maxHookOutput; over > 0 {
		t.kept, t.cut = slices.Delete(t.kept, 0, over), true
	}
	return len(b), nil
}

// text returns the end of the output after a colon, or "".
func (t *tail) text() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), "?"))
	switch {
	case s == "":
		return ""
	case t.cut:
		return ": ..." + s
	}
	return ": " + s
}

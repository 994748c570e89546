package e2e

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal at which a test types and reads.
type terminal struct {
	t     *testing.T
	file  *os.File
	shown buffer // what shows has not consumed yet
	all   buffer
	reads sync.WaitGroup
	once  sync.Once
}

// onTerminal starts a program on a terminal of 80 columns of its own.
func onTerminal(t *testing.T, name string, args ...string) (*terminal, *process) {
	t.Helper()
	term := &terminal{t: t}
	p := launch(t, command(name, args...), func(cmd *exec.Cmd) error {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, nil, nil // the terminal is all three
		cmd.Env = append(cmd.Env, "TERM=xterm", "PROMPT_COMMAND=", "HISTFILE=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
		if err != nil {
			return err
		}
		defer file.Close()
		// The library leaves the file in a mode in which Close does not end a Read.
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			return err
		}
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		term.file = os.NewFile(uintptr(fd), "terminal")
		return nil
	})
	term.reads.Go(func() { _, _ = io.Copy(io.MultiWriter(&term.shown, &term.all), term.file) }) // until it is closed, or nobody writes any more
	t.Cleanup(term.close)
	return term, p
}

// close hangs up.
func (t *terminal) close() {
	t.once.Do(func() {
		t.file.Close()
		t.reads.Wait()
	})
}

func (s *shell) types(text string) {
	s.t.Helper()
	if _, err := s.terminal.file.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the terminal shows a text, after the last one that a test has waited for, and
// drops everything up to it. It waits with patience.
func (s *shell) shows(text string, limit time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(patience(limit)); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s.terminal.shown.forget(text) {
			return
		}
	}
	s.t.Fatalf("the terminal does not show %q; it showed:\n%s", text, strings.ReplaceAll(s.terminal.all.String(), "\r", ""))
}

// forget drops everything up to a text, if the text is there.
func (b *buffer) forget(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := bytes.Index(b.text.Bytes(), []byte(text))
	if n >= 0 {
		b.text.Next(n + len(text))
	}
	return n >= 0
}

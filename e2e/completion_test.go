package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// typist is a shell at which a person types, and how its completion is loaded.
type typist struct {
	name  string
	args  []string
	setup []string
}

// typists returns the shells, which start without the user's configuration and have a prompt that
// no output of chubbyctl contains.
func typists(dir string) []typist {
	return []typist{
		{"bash", []string{"--norc", "--noprofile", "-i"}, []string{
			"source /usr/share/bash-completion/bash_completion", "source <(chubbyctl completion bash)",
		}},
		{"zsh", []string{"-f", "-i"}, []string{
			"autoload -U compinit; compinit -u -d " + filepath.Join(dir, "zcompdump"), "source <(chubbyctl completion zsh)",
		}},
		{"fish", []string{"--no-config", "-i"}, []string{
			"function fish_greeting; end", "chubbyctl completion fish | source",
		}},
	}
}

// screen is a shell on a pseudo terminal, and what it has shown.
type screen struct {
	t     *testing.T
	pty   *os.File
	shown buffer
}

// open starts a shell in which chubbyctl finds the cell by itself.
func (s typist) open(t *testing.T, path, servers string) *screen {
	t.Helper()
	cmd := exec.Command(path, s.args...)
	home := t.TempDir()
	cmd.Env = []string{
		"PATH=" + binaries + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm", "LC_ALL=C.UTF-8",
		"CHUBBY_CELLS=local=" + servers, "CHUBBY_CONFIG=/dev/null", "GORACE=atexit_sleep_ms=0",
	}
	cmd.Dir = home
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
	stopIf(t, err != nil, "start %s on a terminal: %v", s.name, err)
	term := &screen{t: t, pty: file}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(&term.shown, file) // ends with the terminal
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		file.Close()
		<-shown
	})
	for _, line := range s.setup {
		term.line(line)
	}
	term.ready()
	return term
}

func (m *screen) write(text string) {
	m.t.Helper()
	if _, err := m.pty.WriteString(text); err != nil {
		m.t.Fatalf("type %q: %v", text, err)
	}
}

// tab types a text and Tab, and waits until the shell has finished: until it has shown something,
// and then nothing for a while.
func (m *screen) tab(text string) {
	m.t.Helper()
	m.write(text + "\t")
	m.settle()
}

func (m *screen) settle() {
	m.t.Helper()
	const quiet, longest = 500 * time.Millisecond, time.Minute
	seen, since := m.shown.String(), time.Now()
	for begun := time.Now(); time.Since(begun) < longest; time.Sleep(20 * time.Millisecond) {
		if now := m.shown.String(); now != seen {
			seen, since = now, time.Now()
		}
		if time.Since(since) > quiet {
			return
		}
	}
	m.t.Fatalf("the screen does not come to rest:\n%q", m.shown.String())
}

func (m *screen) line(text string) {
	m.t.Helper()
	m.write(text + "\r")
	m.settle()
}

// ready waits until the shell runs commands.
func (m *screen) ready() {
	m.t.Helper()
	m.shows("echo rea''dy\r", "ready")
}

// shows types something, and waits until the screen shows text that came after that.
func (m *screen) shows(typed, text string) {
	m.t.Helper()
	before := len(m.shown.String())
	m.write(typed)
	for begun := time.Now(); time.Since(begun) < patience(15*time.Second); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(m.shown.String()[before:], text) {
			m.settle()
			return
		}
	}
	m.t.Fatalf("after %q, %q was not shown:\n%s\n%q", typed, text, m.shown.String()[before:], m.shown.String()[before:])
}

// TestCompletion presses Tab in real shells on a real terminal, and looks at what the completed commands do.
func TestCompletion(t *testing.T) {
	besideOthers(t)
	w := start(t, "--replicas", "1")
	w.must("mkdir", "/ls/local/directory")
	w.must("put", "/ls/local/directory/config", "of the directory")
	w.must("put", "/ls/local/directory/two words", "of two words")
	w.must("mkdir", "/ls/local/spa ce")
	w.must("put", "/ls/local/spa ce/beta-one", "the third")
	w.must("put", "/ls/local/spa ce/beta-two", "the fourth")
	w.must("put", "/ls/local/alpha-one", "the first")
	w.must("put", "/ls/local/alpha-two", "the second")
	for _, s := range typists(t.TempDir()) {
		t.Run(s.name, func(t *testing.T) {
			path, err := exec.LookPath(s.name)
			stopIf(t, err != nil, "%s is not installed: apt-get install bash bash-completion zsh fish", s.name)
			t.Parallel()
			s.completes(t, path, w)
			s.isSilentWithoutACell(t, path)
		})
	}
}

func (s typist) completes(t *testing.T, path string, w *world) {
	m := s.open(t, path, fmt.Sprintf("127.0.0.1:%d", w.base))
	m.tab("chubbyctl cat /ls/lo")
	m.tab("dire") // below the root, which has a slash behind, and no space
	m.tab("con")
	m.shows("\r", "of the directory")

	m.tab("chubbyctl cat /ls/local/directory/two")
	m.shows("\r", "of two words")

	if s.name != "fish" { // whose script, of cobra, finds nothing behind a space
		m.tab("chubbyctl cat /ls/local/spa") // several below a name with a space
		m.tab("be")
		m.write("tw")
		m.tab("")
		m.shows("\r", "the fourth")
	}

	m.tab("chubbyctl cat /ls/local/alp") // two begin so: their common beginning
	m.write("tw")
	m.tab("")
	m.shows("/ls/local/alpha-one\r", "the secondthe first") // with a space behind the file

	m.tab("chubbyctl expl")
	m.shows("/ls/local/alpha-one\r", "the lock is free")

	if s.name != "zsh" { // which expands the line at Tab by itself, without a look at the script
		ran := filepath.Join(t.TempDir(), "ran") // what is typed is not run before Enter
		m.tab("chubbyctl cat /ls/local/alp$(touch " + ran + ")")
		m.write("\x15") // Ctrl-U takes the line back
		m.settle()
		failIf(t, errOf(os.Stat(ran)) == nil, "Tab ran a command substitution of the line")
	}

	m.tab("chubbyctl cell status --out")
	m.tab(" js")
	m.shows("\r", `"replicas":[{`)
}

// isSilentWithoutACell: if no cell answers, Tab costs a second, and prints nothing on the line that is being typed.
func (s typist) isSilentWithoutACell(t *testing.T, path string) {
	m := s.open(t, path, "127.0.0.1:1")
	m.write("chubbyctl cat /ls/local/al")
	m.settle()
	begun, before := time.Now(), len(m.shown.String())
	m.write("\t\x15") // Ctrl-U takes the line back
	m.shows("echo still the''re\r", "still there")
	if took := time.Since(begun); took > patience(6*time.Second) {
		t.Errorf("the shell was busy for %v", took)
	}
	for _, word := range []string{"refused", "Unavailable", "chubbyctl: ", "waiting"} {
		if shown := m.shown.String()[before:]; strings.Contains(shown, word) {
			t.Errorf("Tab without a cell shows %q:\n%s", word, shown)
		}
	}
}

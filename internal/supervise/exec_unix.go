//go:build unix

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// shellPath is the shell that POSIX has run a script without "#!".
const shellPath = "/bin/sh"

// startProcess starts the command as a caller of execvp does, with what a service manager said to chubbyctl said to it.
func (g *guardian) startProcess() (*os.Process, error) {
	path, args := g.path, g.args
	if renamed := pidVariables(); len(renamed) > 0 {
		// The number is known between fork and exec, which a shell is too. It keeps all but the name under which the command
		// is called.
		script := "unset LISTEN_PIDFDID; export " + strings.Join(renamed, "=$$ ") + `=$$; exec "$0" "$@"`
		path, args = shellPath, append([]string{"sh", "-c", script, path}, args[1:]...)
	}
	attr := &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attributes()}
	process, err := os.StartProcess(path, args, attr)
	if errors.Is(err, unix.ENOEXEC) && isText(path) {
		process, err = os.StartProcess(shellPath, append([]string{shellPath, path}, args[1:]...), attr)
	}
	return process, err
}

// pidVariables returns the variables by which systemd speaks to one process, by its number, and which name chubbyctl: sockets
// are passed to LISTEN_PID, and a watchdog waits for WATCHDOG_PID. The command is that process.
func pidVariables() (names []string) {
	for _, name := range []string{"LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"} {
		if os.Getenv(name) == strconv.Itoa(os.Getppid()) {
			names = append(names, name)
		}
	}
	return names
}

// isText reports whether a file may be a script, as shells decide it: no program of another machine.
func isText(path string) bool {
	head, err := readHead(path)
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return err == nil && !bytes.HasPrefix(head, []byte("\x7fELF")) && bytes.IndexByte(line, 0) < 0
}

// readHead reads the beginning of a file.
func readHead(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, 256))
}

// explainStart says what is missing if the system finds no file, though the program is there.
func explainStart(path string, errno syscall.Errno) error {
	if errno != unix.ENOENT {
		return errno
	}
	head, err := readHead(path)
	if err != nil {
		return errno
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	script, is := bytes.CutPrefix(line, []byte("#!"))
	switch name, returned := bytes.CutSuffix(script, []byte("\r")); {
	case !is:
		return fmt.Errorf("what it is run with, as its dynamic loader, is missing: %w", fs.ErrNotExist)
	case returned:
		return fmt.Errorf("its interpreter %q is missing: its lines end with CR LF, as on Windows; end them with LF, as dos2unix does: %w", string(name)+"\r", fs.ErrNotExist)
	default:
		return fmt.Errorf("its interpreter %q is missing: %w", strings.TrimSpace(string(name)), fs.ErrNotExist)
	}
}

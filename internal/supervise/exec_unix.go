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

// shellPath is POSIX's shell for a script without "#!".
const shellPath = "/bin/sh"

// startProcess starts the command like execvp's caller, and passes on a service manager's variables.
func (g *guardian) startProcess() (*os.Process, error) {
	path, args := g.path, g.args
	if renamed := pidVariables(); len(renamed) > 0 {
		// A shell that then executes the command knows its process number. It keeps everything except the
		// command's name.
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

// pidVariables returns the variables with which systemd addresses chubbyctl by process number: for sockets
// (LISTEN_PID) or a watchdog (WATCHDOG_PID). The command takes that role.
func pidVariables() (names []string) {
	for _, name := range []string{"LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"} {
		if os.Getenv(name) == strconv.Itoa(os.Getppid()) {
			names = append(names, name)
		}
	}
	return names
}

// isText reports whether a file may be a script, by the rule of shells: not a program for another machine.
func isText(path string) bool {
	head, err := readHead(path)
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return err == nil && !bytes.HasPrefix(head, []byte("\x7fELF")) && bytes.IndexByte(line, 0) < 0
}

func readHead(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, 256))
}

// explainStart explains ENOENT for a program that exists.
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

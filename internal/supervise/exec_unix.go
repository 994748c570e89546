//go:build unix

package supervise

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

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
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head, err := io.ReadAll(io.LimitReader(file, 256))
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return err == nil && !bytes.HasPrefix(head, []byte("\x7fELF")) && bytes.IndexByte(line, 0) < 0
}

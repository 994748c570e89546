package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"
)

// Exit codes of a command that was not run, as shells have them.
const (
	ExitNotRunnable = 126
	ExitNotFound    = 127
)

// ErrLate is returned if the time of a command was over before the command could be
// started. Nothing was run.
var ErrLate = errors.New("its time was over before it could be started")

// Command is what to run, and until when.
type Command struct {
	Path string   // the program, as Find returned it
	Args []string // its arguments, the program's name as the first
	Env  []string // its environment

	// Stdin is its standard input; nil: that of this process. It may be closed after Start.
	Stdin *os.File

	// Guardian is the program and the leading arguments that lead to
	// RunGuardian in a new process.
	Guardian []string

	// Allowed returns for how long from now the command and everything it started
	// may still run. news is false if nothing is known since the last call. It is
	// called every Refresh, and must not block.
	Allowed func() (left time.Duration, news bool)
	Refresh time.Duration

	// Margin is for how long after that time nobody else can have the lock. A
	// guardian that is late by half of it is killed, and the command with it.
	Margin time.Duration

	// KillAfter is how long before the end of that time the command is asked to
	// end with SIGTERM. At the end it is killed.
	KillAfter time.Duration

	// Notice is called with one line of text that the user should read while the
	// command runs. One goroutine calls it, and it may block; notices that come
	// meanwhile wait, and are dropped if very many do.
	Notice func(text string)
}

// Result is how a command ended.
type Result struct {
	Code int  // its exit code; 128+n if signal n killed it
	Cut  bool // it was stopped because its time was over, or by Stop
}

// NotRunError is returned for a command that cannot be run. Nothing was run.
type NotRunError struct {
	Name string
	Code int // ExitNotRunnable or ExitNotFound
	Err  error
}

// Error says what cannot be run and why.
func (e *NotRunError) Error() string { return fmt.Sprintf("cannot run %q: %v", e.Name, e.Err) }

// Unwrap returns the cause.
func (e *NotRunError) Unwrap() error { return e.Err }

func notRun(name string, err error) *NotRunError {
	code := ExitNotRunnable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		code = ExitNotFound
	}
	return &NotRunError{Name: name, Code: code, Err: err}
}

// Runnable reports whether a file can be run as a program.
func Runnable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// Find looks a program up as a shell does, and fails with a NotRunError if
// there is none or it may not be executed.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	// LookPath returns what it found wrong in the last directory of PATH. A file that
	// is there and cannot be executed has an exit code of its own.
	if info, statErr := os.Stat(name); statErr == nil {
		switch {
		case info.IsDir():
			return "", &NotRunError{Name: name, Code: ExitNotRunnable, Err: errors.New("it is a directory")}
		case errors.Is(err, fs.ErrPermission):
			return "", &NotRunError{Name: name, Code: ExitNotRunnable, Err: errors.New("it is not executable; try chmod +x")}
		}
	}
	if errors.Is(err, exec.ErrDot) {
		return "", &NotRunError{Name: name, Code: ExitNotFound, Err: fmt.Errorf("it is only in the current directory; write ./%s", name)}
	}
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	return "", notRun(name, err)
}

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"
)

// Exit codes of a command that did not run, as in shells.
const (
	ExitNotRunnable = 126
	ExitNotFound    = 127
)

// ErrLate says that a command's time was over before its start. Nothing ran.
var ErrLate = errors.New("its time was over before it could be started")

// Command is what to run, and until when.
type Command struct {
	Path string   // the program, from Find
	Args []string // its arguments; the first is the program's name
	Env  []string // its environment

	// Stdin is its standard input; nil: this process's. It may be closed after Start.
	Stdin *os.File

	// Guardian is the program and first arguments that lead to RunGuardian in a new process.
	Guardian []string

	// Allowed returns how long from now the command and its descendants may still run. news is false if nothing
	// is new since the last call. It is called every Refresh, and must not block.
	Allowed func() (left time.Duration, news bool)
	Refresh time.Duration

	// Margin is how long after that time nobody else can have the lock. A guardian late by half of it is
	// killed.
	Margin time.Duration

	// KillAfter is the time from SIGTERM to the end of that time, when the command is killed.
	KillAfter time.Duration

	// Notice gets a line of text for the user. One goroutine calls it, and it may block; later notices wait,
	// and very many are dropped.
	Notice func(text string)
}

// Result is how a command ended.
type Result struct {
	Code int  `json:"code"` // its exit code; 128+n if signal n killed it
	Cut  bool `json:"cut"`  // stopped because its time was over, or by Stop
}

// NotRunError says that a command cannot run. Nothing ran.
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

// Find looks a program up like a shell. It fails with a NotRunError.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	// LookPath returns the fault of the last directory in PATH. An existing file that is not executable has its
	// own exit code.
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

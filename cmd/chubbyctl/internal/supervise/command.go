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

// ErrLate is returned for a command whose time was over before it could be
// started. Nothing was run.
var ErrLate = errors.New("its time was over before it could be started")

// Command is what to run and under which terms.
type Command struct {
	Path string   // the program, as Find returned it
	Args []string // its arguments, the program's name as the first
	Env  []string // its environment

	// Guardian is the program and the leading arguments that lead to
	// RunGuardian in a new process.
	Guardian []string

	// Allowed says for how long from now the command and everything it started
	// may still run, or that there is no news of that since it was last asked.
	// It is asked every Refresh, and answers at once.
	Allowed func() (left time.Duration, news bool)
	Refresh time.Duration

	// Margin is for how long after that time nobody else can have what the command
	// works under. A guardian that is late for half of it is killed with the
	// command.
	Margin time.Duration

	// KillAfter is how long before the end of that time the command is asked to
	// end with SIGTERM. At the end it is killed.
	KillAfter time.Duration

	// Notice is told, in one line for people, of what the user should know
	// while the command runs. It is called by one goroutine of its own, and
	// may take as long as it likes; of very many notices, some are not told.
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
	// What LookPath rejects in its last directory hides what it rejected
	// before; a file that is there but cannot be executed is worth its own
	// code.
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

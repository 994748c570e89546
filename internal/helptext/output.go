package helptext

import (
	"cmp"
	"os"
	"sync"
)

// Output is a file to which a program writes its answers. It notes the first write that fails: cobra's help and version have
// no error. Its methods may be called by several goroutines at a time.
type Output struct {
	file *os.File

	mu     sync.Mutex // guards failed
	failed error
}

// NewOutput returns an output to a file, which it does not close.
func NewOutput(file *os.File) *Output { return &Output{file: file} }

// Write writes to the file.
func (o *Output) Write(text []byte) (int, error) {
	n, err := o.file.Write(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = cmp.Or(o.failed, err)
	return n, err
}

// Fd returns the descriptor of the file, of which TerminalWidth asks.
func (o *Output) Fd() uintptr { return o.file.Fd() }

// Failure returns the error of the first write that has failed; nil if none has.
func (o *Output) Failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

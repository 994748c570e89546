//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/chubbylock/chubby/internal/durable"
)

// ownGroup puts a process into its own process group, which the terminal's signals do not reach.
func ownGroup() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attributes)
	return attributes
}

// lockFile locks a file until unlock, or the end of this process. It fails if another process has locked it.
func lockFile(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := durable.Lock(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { file.Close() }, nil
}

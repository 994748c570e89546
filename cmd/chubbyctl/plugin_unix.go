//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// runInPlace replaces this process by a program. It returns only if it cannot.
func runInPlace(path string, args, env []string) error {
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, args, env))
}

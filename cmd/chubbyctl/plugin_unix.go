//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// runInPlace runs a program in the place of this process. It returns only if it cannot.
func runInPlace(path string, args, env []string) error {
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, args, env))
}

//go:build !unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// runInPlace runs a program, and returns how it ended.
func runInPlace(path string, args, env []string) error {
	c := exec.Command(path)
	c.Args, c.Env, c.Stdin, c.Stdout, c.Stderr = args, env, os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return &exitError{code: c.ProcessState.ExitCode()}
}

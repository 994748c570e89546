//go:build !unix

package main

import "os/exec"

// endAsGroup leaves a command as it is: this system has no process groups, and
// the command alone is killed when its context ends.
func endAsGroup(*exec.Cmd) (finish func()) { return func() {} }

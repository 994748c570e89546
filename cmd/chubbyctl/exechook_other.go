//go:build !unix

package main

import "os/exec"

// endAsGroup does nothing: this system has no process groups, and only the command itself is killed when its
// context ends.
func endAsGroup(*exec.Cmd) (finish func()) { return func() {} }

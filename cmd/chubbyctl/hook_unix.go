//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// endAsGroup puts a command, and what it starts, into a process group of its
// own, all of which gets SIGTERM when the command's context ends.
func endAsGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
}

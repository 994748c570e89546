//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// hookSweep is how often to look whether what is to end has ended.
const hookSweep = 20 * time.Millisecond

// endAsGroup puts a command, and what it starts, into a process group of its
// own, all of which gets SIGTERM when the command's context ends. finish, after the
// command, waits for the others then, and kills what ignores that.
func endAsGroup(c *exec.Cmd) (finish func()) {
	var grace <-chan time.Time // nil unless they were asked to end
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error {
		grace = time.After(hookGrace)
		return syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
	}
	return func() {
		if grace == nil {
			return
		}
		tick := time.NewTicker(hookSweep)
		defer tick.Stop()
		for {
			// Orphans may have become this process's children, as in a container of which it
			// is the first process: those that have ended would count as there.
			for reaped := 1; reaped > 0; {
				reaped, _ = syscall.Wait4(-c.Process.Pid, nil, syscall.WNOHANG, nil)
			}
			if syscall.Kill(-c.Process.Pid, 0) == syscall.ESRCH {
				return
			}
			select {
			case <-tick.C:
			case <-grace:
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // they can only have ended
				return
			}
		}
	}
}

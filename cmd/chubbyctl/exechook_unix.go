//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// hookSweep is the interval of checks whether processes have ended.
const hookSweep = 20 * time.Millisecond

// endAsGroup puts a command and its children into their own process group. When the command's context ends, the
// group gets SIGTERM. Call finish after the command has ended: if the group got SIGTERM, it waits for the rest,
// and kills it after hookGrace.
func endAsGroup(c *exec.Cmd) (finish func()) {
	var grace <-chan time.Time // nil without SIGTERM
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
			// Orphans may be children of this process, if it is a container's first process. Kill finds ended
			// ones until they are waited for.
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

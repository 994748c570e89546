//go:build unix

package supervise

import "time"

// slack is the tolerance of the guardian's instant, far below any margin.
const slack = 5 * time.Millisecond

// extendTime sends the guardian the command's limit, if it has changed. It reads the clock before it calls
// Allowed, so that a pause makes the instant early, never late.
func (p *Process) extendTime() {
	instant := now()
	left, news := p.command.Allowed()
	kill := instant + int64(left)
	if off := time.Duration(kill - p.told); !news || off > -slack && off < slack {
		return
	}
	p.told = kill
	p.expectEnd(kill)
	p.control.give(order{StopAt: kill - int64(p.command.KillAfter), KillAt: kill})
}

// expectEnd records the instant by which everything must be gone. Once the command has been asked to end, it
// only moves closer.
func (p *Process) expectEnd(instant int64) {
	if p.asked || p.stopping.Load() {
		instant = min(p.due, instant)
	}
	if instant > p.due {
		p.late = 0
	}
	p.due = instant
}

// nextCheck returns the time until the next checkGuardian.
func (p *Process) nextCheck() time.Duration {
	if p.due == 0 || p.rescued {
		return time.Hour
	}
	return time.Duration(max(p.due, p.late)-now()) + p.command.Margin/4
}

// checkGuardian kills a late guardian, which is stopped (SIGSTOP, a debugger, a frozen group) or hangs. The
// system then kills the command, and killOrphans the rest. The first late check only records that: this process
// may have been stopped itself, with the report in the pipe.
func (p *Process) checkGuardian() {
	switch {
	case p.nextCheck() > 0: // the timer and now use different clocks
	case p.late == 0:
		p.late = now()
	default:
		p.rescued = true
		p.announcer.add("CMD's guardian process did not stop CMD in time, perhaps because it is stopped itself; chubbyctl kills both")
		_ = p.guardian.Process.Kill() // fails only if it has ended
	}
}

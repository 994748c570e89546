//go:build unix

package supervise

import "time"

// slack is by how much the guardian's instant may be off before it is corrected. It is
// far below any margin.
const slack = 5 * time.Millisecond

// extendTime tells the guardian until when the command may run, if that has
// changed. The clock is read before Allowed is asked, so that a pause between
// the two makes the instant early and never late.
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

// expectEnd notes the instant by which everything must be gone. Once the command has
// been asked to end, that instant only comes closer, here as in the guardian.
func (p *Process) expectEnd(instant int64) {
	if p.asked || p.stopping.Load() {
		instant = min(p.due, instant)
	}
	if instant > p.due {
		p.late = 0
	}
	p.due = instant
}

// nextCheck returns how long to wait before the next checkGuardian.
func (p *Process) nextCheck() time.Duration {
	if p.due == 0 || p.rescued {
		return time.Hour
	}
	return time.Duration(max(p.due, p.late)-now()) + p.command.Margin/4
}

// checkGuardian kills a guardian that has not done its work in time, because it is
// stopped (SIGSTOP, a debugger, a frozen group) or hangs. The system kills the command
// then, and killOrphans what is left. The first check that finds the guardian late only
// notes that: this process may have been stopped itself, and the report be in the pipe.
func (p *Process) checkGuardian() {
	switch {
	case p.nextCheck() > 0: // the timer and now use different clocks
	case p.late == 0:
		p.late = now()
	default:
		p.rescued = true
		p.announcer.add("CMD's guardian process did not stop CMD in time, perhaps because it is stopped itself; chubbyctl kills both")
		_ = p.guardian.Process.Kill() // it can only have ended
	}
}

//go:build unix

package supervise

import "time"

// slack is by how much an instant may be off before the guardian is told
// again; it is far below any margin.
const slack = 5 * time.Millisecond

// extend tells the guardian until when the command may run, if that has
// changed. The clock is read before Allowed is asked, so that a pause between
// the two makes the instant early and never late.
func (p *Process) extend() {
	instant := now()
	left, news := p.command.Allowed()
	kill := instant + int64(left)
	if off := time.Duration(kill - p.told); !news || off > -slack && off < slack {
		return
	}
	p.told = kill
	p.expect(kill)
	p.control.give(order{Term: kill - int64(p.command.KillAfter), Kill: kill})
}

// expect notes the instant by which everything is to be gone. Once the command
// is asked to end that only comes closer, as it does for the guardian.
func (p *Process) expect(instant int64) {
	if p.asked || p.stopping.Load() {
		instant = min(p.due, instant)
	}
	if instant > p.due {
		p.late = 0
	}
	p.due = instant
}

// nextCheck is how long to wait until the guardian is to be looked after.
func (p *Process) nextCheck() time.Duration {
	if p.due == 0 || p.rescued {
		return time.Hour
	}
	return time.Duration(max(p.due, p.late)-now()) + p.command.Margin/4
}

// check ends a guardian that has not done its work in time: one that is stopped
// (SIGSTOP, a debugger, a frozen group) or hangs. With it ends the command, and
// what is left becomes this process's to kill. The first check only gives those
// reports a chance that came while this process itself was stopped.
func (p *Process) check() {
	switch {
	case p.nextCheck() > 0: // the timer does not run by the clock of now
	case p.late == 0:
		p.late = now()
	default:
		p.rescued = true
		p.announcer.add("CMD's guardian process did not stop CMD in time, perhaps because it is stopped itself; chubbyctl kills both")
		_ = p.guardian.Process.Kill() // it can only have ended
	}
}

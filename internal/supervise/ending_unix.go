//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// awaitGuardian waits for the guardian's end, and kills remaining processes.
func (p *Process) awaitGuardian() {
	p.control.close()
	if p.gone || p.err != nil { // its work is done; if it is stopped, it never ends by itself
		_ = p.guardian.Process.Kill() // fails only if it has ended
	}
	for range p.reports { // until the reader has reached the end
	}
	err := p.guardian.Wait()
	if p.terminal != nil && p.pid != 0 {
		err := p.terminal.giveBack(p.pid)
		if !p.ended || p.result.Code > 128 {
			//mutant: err = errors.Join(err, nil)
			err = errors.Join(err, p.terminal.restoreSettings())
		}
		if err != nil {
			p.announcer.add(err.Error())
		}
	}
	if p.gone || p.err != nil {
		return
	}
	//mutant: orphans := 0; if p.pid != 0 { orphans = p.killOrphans() }
	orphans := p.killOrphans()
	if p.pid == 0 { // it may have started the command without a report
		p.err = ErrLate
		if !p.deadline.missed {
			p.err = fmt.Errorf("the guardian process ended before it had started the command: %w", untimely(err))
		}
		p.started <- p.err
		return
	}
	switch {
	case p.deadline.missed && p.ended:
		return
	case p.deadline.missed:
		p.result = Result{Code: 128 + int(unix.SIGKILL), Cut: true}
		return
	}
	p.err = fmt.Errorf("the guardian process ended before the command did, and %d of the command's processes were killed: %w", orphans, untimely(err))
}

// untimely returns the error of a guardian that ended too early. err is how it ended, nil for exit code 0.
func untimely(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// looksForOrphans is how many successive looks must find no process, on systems that do not count children.
const looksForOrphans = 3

// killOrphans kills the command's remaining processes, and returns their number.
func (p *Process) killOrphans() int {
	killed := make(map[int]bool)
	for found := 0; ; found++ {
		left := family(p.pid, p.others...)
		_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case len(left) > 0:
			found = 0
		case err == unix.ECHILD || len(p.others) > 0 && found >= looksForOrphans:
			return len(killed)
		}
		for _, pid := range left {
			killed[pid] = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
		}
		<-time.After(killEvery)
	}
}

// slack is the tolerance of the guardian's instant, far below any margin.
const slack = 5 * time.Millisecond

// extendTime sends the guardian the command's limit, if it has changed. It reads the clock before it calls
// Allowed, so that a pause makes the instant early, never late.
func (p *Process) extendTime() {
	instant := now()
	left, news := p.command.Allowed()
	kill := instant + int64(left)
	if off := time.Duration(kill - p.deadline.told); !news || off > -slack && off < slack {
		return
	}
	p.deadline.told = kill
	p.deadline.move(kill)
	p.control.give(order{StopAt: kill - int64(p.command.KillAfter), KillAt: kill})
}

// deadline is when the guardian must have reported that everything is gone.
type deadline struct {
	margin  time.Duration // how long after it nobody else can have the lock
	told    int64         // the last instant of killing sent to the guardian
	due     int64         // the deadline; 0: none yet
	late    int64         // when this process noticed that the guardian is late; else 0
	closing bool          // the command has been asked to end: the deadline only moves closer
	missed  bool          // the guardian is killed because it was late
}

func (d *deadline) move(instant int64) {
	if d.closing {
		instant = min(d.due, instant)
	}
	if instant > d.due {
		d.late = 0
	}
	d.due = instant
}

// closeIn notes that the command is asked to end, and killed in that time at the latest.
func (d *deadline) closeIn(left time.Duration) {
	d.closing = true
	d.move(now() + int64(left))
}

// nextCheck returns the time until the next isMissed.
func (d *deadline) nextCheck() time.Duration {
	if d.due == 0 || d.missed {
		return time.Hour
	}
	return time.Duration(max(d.due, d.late)-now()) + d.margin/4
}

// isMissed reports whether the guardian is too late: it is stopped (SIGSTOP, a debugger, a frozen group) or hangs.
// The first late check only records that: this process may have been stopped itself, with the report in the pipe.
func (d *deadline) isMissed() bool {
	switch {
	case d.nextCheck() > 0: // the timer and now use different clocks
	case d.late == 0:
		d.late = now()
	default:
		d.missed = true
	}
	return d.missed
}

// checkGuardian kills a late guardian. The system then kills the command, and killOrphans the rest.
func (p *Process) checkGuardian() {
	if !p.deadline.missed && p.deadline.isMissed() {
		p.announcer.add("CMD's guardian process did not stop CMD in time, perhaps because it is stopped itself; chubbyctl kills both")
		_ = p.guardian.Process.Kill() // fails only if it has ended
	}
}

//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// conclude waits for the guardian, and kills what it did not live to kill.
func (p *Process) conclude() {
	p.control.close()
	if p.gone || p.err != nil { // nothing is left for it to do; and it may be stopped, and never end
		_ = p.guardian.Process.Kill() // it can only have ended
	}
	for range p.reports { // until the reader has seen the end
	}
	err := p.guardian.Wait()
	if p.terminal != nil && p.pid != 0 {
		err := p.terminal.takeBack(p.pid)
		if !p.ended || p.result.Code > 128 {
			err = errors.Join(err, p.terminal.mend())
		}
		if err != nil {
			p.announcer.add(err.Error())
		}
	}
	if p.gone || p.err != nil {
		return
	}
	orphans := p.sweep()
	if p.pid == 0 { // perhaps with a command whose start it had not reported
		p.err = ErrLate
		if !p.rescued {
			p.err = fmt.Errorf("the guardian process ended before it had started the command: %w", untimely(err))
		}
		p.started <- p.err
		return
	}
	switch {
	case p.rescued && p.ended:
		return
	case p.rescued:
		p.result = Result{Code: 128 + int(unix.SIGKILL), Cut: true}
		return
	}
	p.err = fmt.Errorf("the guardian process ended before the command did, and %d of the command's processes were killed: %w", orphans, untimely(err))
}

// untimely is the error of a guardian that ended, perhaps without one, before it
// had said that everything is gone.
func untimely(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// looksToBeSure is how many looks in succession must find nobody, where the system
// cannot be asked whether there are children left.
const looksToBeSure = 3

// sweep kills every process that is left of the command's, and returns how many
// there were.
func (p *Process) sweep() int {
	killed := make(map[int]bool)
	for found := 0; ; found++ {
		left := family(p.pid, p.others...)
		_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case len(left) > 0:
			found = 0
		case err == unix.ECHILD || len(p.others) > 0 && found >= looksToBeSure:
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

//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// awaitGuardian waits for the end of the guardian, and kills what the guardian has left.
func (p *Process) awaitGuardian() {
	p.control.close()
	if p.gone || p.err != nil { // it has nothing left to do; and if it is stopped, it never ends by itself
		_ = p.guardian.Process.Kill() // it can only have ended
	}
	for range p.reports { // until the reader has seen the end
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
	if p.pid == 0 { // it may have started the command, and not have reported that
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

// untimely returns the error of a guardian that ended before it had reported that
// everything is gone. err is how it ended, nil for exit code 0.
func untimely(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// looksForOrphans is how many looks in succession must find no process, where the system
// cannot say whether there are children left.
const looksForOrphans = 3

// killOrphans kills every process of the command that is left, and returns how many
// there were.
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

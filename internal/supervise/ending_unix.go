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

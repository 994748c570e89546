//go:build unix

package supervise

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// forwardSignal passes a signal on to the command. The terminal's stop also stops this process.
func (p *Process) forwardSignal(s os.Signal) {
	p.control.give(order{Signal: Number(s)})
	if s == unix.SIGTSTP {
		p.suspend(os.Getpid(), p.terminal != nil && p.pid != 0 && (p.terminal.first || p.terminal.lent))
	}
}

// lendTerminal gives the command the foreground. If an earlier read has stopped it, the report of that
// continues it.
func (p *Process) lendTerminal() {
	if err := p.terminal.lend(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
}

// continueStarved continues a command that the system stopped for using the terminal from the background, if it
// can have the terminal now, and reports that. It is polled: a shell does not always send a signal with the
// foreground.
func (p *Process) continueStarved() bool {
	if !p.starved || p.terminal == nil || !p.terminal.has(p.pid, p.terminal.group) {
		return false
	}
	p.starved = false
	p.lendTerminal()
	p.control.give(order{Signal: int(unix.SIGCONT)})
	return true
}

// suspendToo stops this process after Ctrl-Z has stopped the command. It returns when the shell continues this
// process.
func (p *Process) suspendToo() {
	if err := p.terminal.takeBack(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
	p.suspend(0, true) // all of a pipeline, which the terminal would have stopped too
}

// suspend stops this process (pid), or with 0 its group, until the shell continues it. Then it continues the
// command, and lends it the terminal again if it had it.
func (p *Process) suspend(pid int, lend bool) {
	left := time.Duration(p.told - now()).Round(time.Second)
	p.announcer.addAndWait(fmt.Sprintf("suspended, and nobody renews the lock now: CMD is killed in %v unless it is continued", left))
	suspendSelf(pid)
	if lend {
		p.lendTerminal()
	}
	p.control.give(order{Signal: int(unix.SIGCONT)})
}

// yieldTerminal gives the terminal to a process of this group, such as the next of a pipeline, that the system
// stopped for asking. If this group lacks it too, this process stops, as the system would have done.
func (p *Process) yieldTerminal() {
	var err error
	switch {
	case p.terminal.lent:
		err = p.terminal.giveBack(p.pid)
	case p.terminal.has(p.terminal.group): // it has it by now
		err = unix.Kill(0, unix.SIGCONT)
	default:
		suspendSelf(os.Getpid())
	}
	if err != nil {
		p.announcer.add(err.Error())
	}
}

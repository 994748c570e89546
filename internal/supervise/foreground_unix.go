//go:build unix

package supervise

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// forwardSignal passes a signal on to the command. The terminal's stop stops this
// process too, until the shell continues it.
func (p *Process) forwardSignal(s os.Signal) {
	p.control.give(order{Signal: Number(s)})
	if s == unix.SIGTSTP {
		p.suspend(os.Getpid(), p.terminal != nil && p.pid != 0 && (p.terminal.first || p.terminal.lent))
	}
}

// lendTerminal makes the command the terminal's foreground. If the command has read
// before that, and the system has stopped it for it, the report of the stop continues it.
func (p *Process) lendTerminal() {
	if err := p.terminal.lend(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
}

// continueStarved continues a command that the system has stopped because it used the
// terminal from the background, if it can have the terminal now. It reports whether it
// can. It is asked again and again: a shell that brings this process to the foreground
// does not always send a signal.
func (p *Process) continueStarved() bool {
	if !p.starved || p.terminal == nil || !p.terminal.has(p.pid, p.terminal.group) {
		return false
	}
	p.starved = false
	p.lendTerminal()
	p.control.give(order{Signal: int(unix.SIGCONT)})
	return true
}

// suspendToo stops this process after Ctrl-Z has stopped the command, so that the shell
// goes on. It returns when the shell has continued this process.
func (p *Process) suspendToo() {
	if err := p.terminal.takeBack(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
	p.suspend(0, true) // all of a pipeline, which the terminal would have stopped too
}

// suspend stops this process, whose pid is given, or with 0 all of its group, until the shell has continued it. It continues
// the command then, to which it lends the terminal if the command had it: the shell took it.
func (p *Process) suspend(pid int, lend bool) {
	left := time.Duration(p.told - now()).Round(time.Second)
	p.announcer.addAndWait(fmt.Sprintf("suspended, and nobody renews the lock now: CMD is killed in %v unless it is continued", left))
	suspendSelf(pid)
	if lend {
		p.lendTerminal()
	}
	p.control.give(order{Signal: int(unix.SIGCONT)})
}

// yieldTerminal gives the terminal to one of this process's group, as the next of a pipeline, that has asked for it and that
// the system has stopped for that. If not even this group has it, this process is stopped too, as the system would have done.
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

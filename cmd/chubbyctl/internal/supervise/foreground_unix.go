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
		suspendSelf(os.Getpid())
		if p.terminal != nil && p.pid != 0 {
			p.lendTerminal() // the shell took it
		}
		p.control.give(order{Signal: int(unix.SIGCONT)})
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
	left := time.Duration(p.told - now()).Round(time.Second)
	p.announcer.addAndWait(fmt.Sprintf("suspended, and nobody renews the lock now: CMD is killed in %v unless it is continued", left))
	suspendSelf(0) // all of a pipeline, which the terminal would have stopped too
	p.lendTerminal()
	p.control.give(order{Signal: int(unix.SIGCONT)})
}

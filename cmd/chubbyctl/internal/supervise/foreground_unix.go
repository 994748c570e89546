//go:build unix

package supervise

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func (p *Process) forward(s os.Signal) {
	p.control.give(order{Signal: Number(s)})
	if s == unix.SIGTSTP {
		suspendSelf(os.Getpid())
		if p.terminal != nil && p.pid != 0 {
			p.lend() // the shell took it
		}
		p.control.give(order{Signal: int(unix.SIGCONT)})
	}
}

// lend makes the command the terminal's foreground. If it has tried to read
// already, and been stopped for that, the report of that has it continued.
func (p *Process) lend() {
	if err := p.terminal.lend(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
}

// feed continues a command that was stopped because it used the terminal without
// having it, if it can have it now, and returns whether it can. The shell that
// brings this process to the foreground need not say so.
func (p *Process) feed() bool {
	if !p.starved || p.terminal == nil || !p.terminal.has(p.pid, p.terminal.group) {
		return false
	}
	p.starved = false
	p.lend()
	p.control.give(order{Signal: int(unix.SIGCONT)})
	return true
}

// suspend does what Ctrl-Z asks for: the command is stopped, so this process
// stops too, for the shell to go on, until the shell continues it.
func (p *Process) suspend() {
	if err := p.terminal.takeBack(p.pid); err != nil {
		p.announcer.add(err.Error())
	}
	left := time.Duration(p.told - now()).Round(time.Second)
	p.announcer.tellNow(fmt.Sprintf("suspended, and nobody renews the lock now: CMD is killed in %v unless it is continued", left))
	suspendSelf(0) // all of a pipeline, which the terminal would have stopped too
	p.lend()
	p.control.give(order{Signal: int(unix.SIGCONT)})
}

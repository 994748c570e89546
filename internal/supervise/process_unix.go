//go:build unix

package supervise

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a command that runs under a guardian.
type Process struct {
	command  Command
	guardian *exec.Cmd
	signals  chan os.Signal
	others   []int // earlier children of this process: a shell that execs chubbyctl leaves its own
	orders   chan order
	reports  chan report
	started  chan error    // Start's result
	finished chan struct{} // closed when everything is gone
	stopping atomic.Bool   // the guardian has asked the command to end

	// Only runSupervision's goroutine uses these until finished is closed; then they do not change.
	control   *control
	announcer *announcer
	terminal  *terminal
	deadline  deadline
	pid       int
	gone      bool // the guardian has reported that everything is gone
	ended     bool // the guardian has reported how the command ended
	starved   bool // the system has stopped the command for using the terminal from the background
	result    Result
	err       error
}

// Start runs a command with this process's standard streams, except for Command.Stdin, and passes the signals
// of Listen to it from now on. It fails with a NotRunError if the command cannot run, and with ErrLate if its
// time is over.
func Start(c Command, signals chan os.Signal) (*Process, error) {
	// If the guardian ends first, this process inherits the command's processes, and kills them.
	if err := adopt(); err != nil {
		return nil, err
	}
	p := &Process{
		command:  c,
		signals:  signals,
		orders:   make(chan order),
		reports:  make(chan report),
		started:  make(chan error, 1),
		finished: make(chan struct{}),
		terminal: openTerminal(),
		deadline: deadline{margin: c.Margin},
	}
	//mutant: _ = children
	p.others = children()
	status, err := p.launch()
	if err != nil {
		if p.terminal != nil {
			p.terminal.close()
		}
		return nil, err
	}
	p.announcer = newAnnouncer(c.Notice)
	go p.readReports(status)
	go p.runSupervision(earlyInterrupts(signals))
	if err := <-p.started; err != nil {
		<-p.finished
		return nil, err
	}
	return p, nil
}

func (p *Process) launch() (*os.File, error) {
	controlRead, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer controlRead.Close()
	status, statusWrite, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer statusWrite.Close()
	// The guardian inherits its pipe ends under their numbers here: the user may give the command files 3 and
	// 4.
	ends := [...]uintptr{controlRead.Fd(), statusWrite.Fd()}
	for _, fd := range ends {
		_, e := unix.FcntlInt(fd, unix.F_SETFD, 0)
		err = errors.Join(err, e)
	}
	args := append(p.command.Guardian[1:], guardianArgs(ends[0], ends[1], p.command)...)
	p.guardian = exec.Command(p.command.Guardian[0], args...)
	p.guardian.Args[0] = guardianName
	p.guardian.Env = p.command.Env
	p.guardian.Stdin, p.guardian.Stdout, p.guardian.Stderr = cmp.Or(p.command.Stdin, os.Stdin), os.Stdout, os.Stderr
	p.guardian.SysProcAttr = guardianAttributes()
	if err == nil {
		err = p.guardian.Start()
	}
	if err != nil {
		orders.Close()
		status.Close()
		return nil, fmt.Errorf("start the guardian process: %w", err)
	}
	p.control = &control{pipe: orders}
	return status, nil
}

func (p *Process) readReports(status *os.File) {
	defer close(p.reports)
	defer status.Close()
	decoder := json.NewDecoder(status)
	for {
		var r report
		if err := decoder.Decode(&r); err != nil {
			return
		}
		p.reports <- r
	}
}

// runSupervision sends orders and takes reports until everything is gone.
func (p *Process) runSupervision(interrupts []os.Signal) {
	defer close(p.finished)
	defer p.announcer.close()
	signal.Notify(p.signals, forwarded()...)
	refresh := time.NewTicker(p.command.Refresh)
	defer refresh.Stop()
	overdue := time.NewTimer(time.Hour)
	defer overdue.Stop()
	var terminalAsked <-chan os.Signal
	if p.terminal != nil {
		defer p.terminal.close()
		terminalAsked = p.terminal.asked
	}
	p.extendTime()
	if p.deadline.told == 0 {
		p.control.give(order{Stop: true}) // Allowed leaves no time: start nothing
	}
	for _, s := range interrupts {
		p.control.give(order{Signal: Number(s)})
	}
	for open := true; open; {
		overdue.Reset(p.deadline.nextCheck())
		select {
		case <-overdue.C:
			p.checkGuardian()
		case <-refresh.C:
			p.extendTime()
			p.control.flush()
			p.continueStarved()
		case s := <-p.signals:
			p.forwardSignal(s)
		case <-terminalAsked:
			p.yieldTerminal()
		case o := <-p.orders:
			if o.Stop {
				p.deadline.closeIn(p.command.KillAfter)
			}
			p.control.give(o)
		case r, more := <-p.reports:
			open = more && p.handleReport(r)
		}
	}
	p.awaitGuardian()
}

// handleReport handles a report, and reports whether more will come.
func (p *Process) handleReport(r report) bool {
	switch {
	case r.Failed != "":
		switch p.err = errors.New(r.Failed); {
		case r.Late:
			p.err = ErrLate
		case r.Errno != 0:
			p.err = notRun(p.command.Path, explainStart(p.command.Path, syscall.Errno(r.Errno)))
		}
		p.started <- p.err
		return false
	case r.Started != 0:
		p.pid = r.Started
		if p.terminal != nil && p.terminal.first {
			p.lendTerminal()
		}
		p.started <- nil
	case r.Suspended != 0 && p.stopping.Load():
		// The command is being ended: in a suspended process, the user would not see how.
	//mutant: case r.Suspended == -1:
	case r.Suspended == int(unix.SIGSTOP):
		// A debugger or a processor limit, not the terminal, has stopped the command, and will continue it. The
		// lock is renewed meanwhile.
	case r.Suspended == int(unix.SIGTTIN) || r.Suspended == int(unix.SIGTTOU):
		p.starved = true
		if !p.continueStarved() {
			p.announcer.add("CMD is stopped because it uses the terminal from the background; it goes on when chubbyctl is in the foreground (fg)")
		}
	case r.Suspended != 0 && p.terminal != nil && p.terminal.lent && p.terminal.has(p.pid, p.terminal.group):
		p.suspendToo()
	case r.Immune != 0:
		p.announcer.add(fmt.Sprintf("process %d of CMD cannot be stopped, because it runs as another user; it may outlive the lock. Run chubbyctl as that user instead (sudo chubbyctl ..., and not sudo in CMD)", r.Immune))
	case r.Stopping != 0:
		p.stopping.Store(true)
		p.deadline.closeIn(time.Duration(r.Stopping))
		what := "CMD gets"
		if p.ended {
			what = fmt.Sprintf("CMD has ended, and %d of the processes that it has left behind have not: they get", r.Left)
		}
		p.announcer.add(fmt.Sprintf("%s SIGTERM, and SIGKILL in %v at the latest", what, time.Duration(r.Stopping).Round(10*time.Millisecond)))
	case r.Ended != nil:
		p.ended = true
		p.result = *r.Ended
	case r.Gone:
		p.gone = true
		return false
	}
	return true
}

// Stop asks the command to end. After KillAfter it is killed.
func (p *Process) Stop() { p.giveOrder(order{Stop: true}) }

// Stopping reports whether the command has been asked to end, by its time or by Stop.
func (p *Process) Stopping() bool { return p.stopping.Load() }

// Signal sends the command a signal.
func (p *Process) Signal(s os.Signal) { p.giveOrder(order{Signal: Number(s)}) }

// SignalUnstopped signals the command, unless it has been asked to end. The guardian decides; Stopping lags a
// moment behind.
func (p *Process) SignalUnstopped(s os.Signal) {
	p.giveOrder(order{Signal: Number(s), Unstopped: true})
}

func (p *Process) giveOrder(o order) {
	select {
	case p.orders <- o:
	case <-p.finished:
	}
}

// Done is closed when the command and everything it started are gone.
func (p *Process) Done() <-chan struct{} { return p.finished }

// Wait returns how the command ended, once all is gone. It fails only if the supervision broke off.
func (p *Process) Wait() (Result, error) {
	<-p.finished
	return p.result, p.err
}

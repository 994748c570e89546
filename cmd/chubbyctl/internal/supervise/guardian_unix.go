//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	guardianName = "chubby-guardian"
	sweepEvery   = 20 * time.Millisecond // while processes are to end
	killEvery    = 5 * time.Millisecond  // while they are killed: what forks must not keep ahead
)

// guardianArgs is the command line that RunGuardian reads.
func guardianArgs(control, status uintptr, c Command) []string {
	return append([]string{
		strconv.FormatUint(uint64(control), 10), strconv.FormatUint(uint64(status), 10),
		strconv.FormatInt(int64(c.KillAfter), 10), c.Path,
	}, c.Args...)
}

// RunGuardian is what a guardian process does. Its arguments are those that
// Start appended to Command.Guardian: nobody else can give them.
func RunGuardian(args []string) error {
	// The command is to be killed when the thread that started it ends, so this
	// thread must stay for as long as the process.
	runtime.LockOSThread()
	if len(args) < 5 {
		return errors.New("the guardian is started by chubbyctl itself, not by hand")
	}
	control, err1 := strconv.Atoi(args[0])
	status, err2 := strconv.Atoi(args[1])
	killAfter, err3 := strconv.ParseInt(args[2], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("the guardian is started by chubbyctl itself, not by hand: %w", err)
	}
	syscall.CloseOnExec(control)
	syscall.CloseOnExec(status)
	g := &guardian{
		status:    &outbox{fd: status},
		killAfter: time.Duration(killAfter),
		path:      args[3],
		args:      args[4:],
	}
	return g.run(os.NewFile(uintptr(control), "control"))
}

// guardian is the parent of one command. All of it belongs to one goroutine.
type guardian struct {
	status    *outbox
	killAfter time.Duration
	path      string
	args      []string
	alarm     *alarm

	pid       int   // the command, and its process group
	term      int64 // when it is to be asked to end
	kill      int64 // when everything is to be killed
	stopping  bool  // it was asked to end
	killing   bool  // everything is being killed
	ended     bool  // the command has ended and was reaped
	suspended bool  // the command was stopped, and perhaps continued since
	passed    bool  // it was passed a SIGTSTP, and not continued since: chubbyctl knows of the stop
	childless bool  // nobody was left to wait for, when that was looked at last
	immune    bool  // it was told that somebody may not be stopped
}

func (g *guardian) run(control io.Reader) (err error) {
	if err := errors.Join(adopt(), rename(guardianName)); err != nil {
		return g.report(report{Failed: err.Error()})
	}
	// Signals that come here are not passed on: chubbyctl passes on what it gets,
	// and who signals every process of a service (systemctl stop) signals the
	// command too.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, forwarded()...)
	signal.Notify(ignored, heeded(unix.SIGPIPE)...)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	orders := make(chan order)
	go readOrders(control, orders) // ends with the pipe, or with this process
	if g.alarm, err = newAlarm(); err != nil {
		return g.report(report{Failed: err.Error()})
	}
	defer g.alarm.close()
	first, ok := <-orders
	if !ok {
		return errors.New("chubbyctl ended before the command was started")
	}
	// chubbyctl may have been stopped for too long, or have lost the lock meanwhile.
	if first.Kill == 0 || first.Term <= now() {
		return g.report(report{Failed: ErrLate.Error(), Late: true})
	}
	if err := g.obey(first); err != nil {
		return err
	}
	if started, err := g.start(); !started {
		return err
	}
	return g.watch(orders, ended)
}

func (g *guardian) report(r report) error { return g.status.put(r) }

func readOrders(control io.Reader, orders chan<- order) {
	defer close(orders)
	decoder := json.NewDecoder(control)
	for {
		var o order
		if err := decoder.Decode(&o); err != nil {
			return
		}
		orders <- o
	}
}

func (g *guardian) start() (bool, error) {
	process, err := os.StartProcess(g.path, g.args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   attributes(),
	})
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		return false, g.report(report{Failed: err.Error(), Errno: int(errno)})
	}
	g.pid = process.Pid
	// Children are reaped by wait4 below, all alike, not one by one.
	if err := process.Release(); err != nil {
		return true, err
	}
	return true, g.report(report{Started: g.pid})
}

// watch runs until the command and all its descendants are gone.
func (g *guardian) watch(orders <-chan order, ended <-chan os.Signal) error {
	sweep := time.NewTicker(time.Hour)
	defer sweep.Stop()
	for {
		switch {
		case g.killing:
			sweep.Reset(killEvery)
		case g.stopping:
			sweep.Reset(sweepEvery)
		}
		var err error
		select {
		case o, ok := <-orders:
			if ok { // pass has to know of a stop that came before the order
				err = errors.Join(g.reap(), g.obey(o))
			} else {
				orders = nil
				err = g.stop()
			}
		case <-ended:
		case <-g.alarm.c:
		case <-sweep.C:
		}
		if err = errors.Join(err, g.reap(), g.keepTime()); err != nil {
			return errors.Join(err, g.slay())
		}
		switch {
		case !g.ended:
		case g.childless && len(family(g.pid)) == 0:
			return g.report(report{Gone: true})
		default:
			// Somebody is left. The list of processes may not show whom: one that forks
			// and ends while it is read is in it, and its child is not.
			if err := g.stop(); err != nil {
				return err
			}
		}
	}
}

// obey carries an order out. Instants may move either way, but once the command
// was asked to end, the moment of killing only comes closer.
func (g *guardian) obey(o order) error {
	if o.Kill != 0 {
		if g.stopping {
			g.kill = min(g.kill, o.Kill)
		} else {
			g.term, g.kill = o.Term, o.Kill
		}
		if err := g.arm(); err != nil {
			return err
		}
	}
	if o.Signal != 0 {
		g.pass(syscall.Signal(o.Signal))
	}
	if o.Stop {
		return g.stop()
	}
	return nil
}

func (g *guardian) arm() error {
	if g.stopping {
		return g.alarm.set(g.kill)
	}
	return g.alarm.set(g.term)
}

// keepTime does what is due.
func (g *guardian) keepTime() error {
	instant := now()
	if !g.stopping && instant >= g.term {
		if err := g.stop(); err != nil {
			return err
		}
	}
	if g.stopping && instant >= g.kill {
		g.killing = true
	}
	if g.killing {
		return g.slay()
	}
	return nil
}

// stop asks the command and everything it started to end, and sees to it that
// they are killed in time.
func (g *guardian) stop() error {
	if g.stopping {
		return nil
	}
	g.stopping = true
	instant := now()
	g.kill = min(g.kill, instant+int64(g.killAfter))
	var err error
	if !g.ended {
		err = g.report(report{Stopping: max(g.kill-instant, 1)})
	}
	for _, pid := range g.audience() {
		// One that is stopped would not notice before it is continued.
		err = errors.Join(err, g.signal(pid, unix.SIGTERM), g.signal(pid, unix.SIGCONT))
	}
	return errors.Join(err, g.arm())
}

// audience lists whom to send a signal so that everybody gets it once: the
// command's process group, and those of its descendants that are not in it.
func (g *guardian) audience() []int {
	everybody := family(g.pid)
	if g.ended {
		return everybody // the group's number may be another's soon
	}
	others := slices.DeleteFunc(everybody, func(pid int) bool {
		group, err := unix.Getpgid(pid)
		return pid == -g.pid || err == nil && group == g.pid
	})
	return append([]int{-g.pid}, others...)
}

// slay kills everything that is there now. What is forked meanwhile is killed
// by the next sweep.
func (g *guardian) slay() error {
	var err error
	if !g.ended {
		err = g.signal(-g.pid, unix.SIGKILL)
	}
	for _, pid := range family(g.pid) {
		err = errors.Join(err, g.signal(pid, unix.SIGKILL))
	}
	return err
}

// signal sends one, and reports, once, that somebody may not be sent any.
func (g *guardian) signal(pid int, s syscall.Signal) error {
	if err := unix.Kill(pid, s); err == unix.EPERM && !g.immune {
		g.immune = true
		return g.report(report{Immune: max(pid, -pid)})
	}
	return nil // it can only have ended
}

// pass gives a signal on: those that a terminal would send to the whole
// foreground go to the command's process group, others to the command alone,
// whose children may not expect them.
func (g *guardian) pass(s syscall.Signal) {
	if g.ended || g.pid == 0 {
		return
	}
	target := g.pid
	if slices.Contains([]syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH}, s) {
		target = -g.pid
	}
	g.passed = s == unix.SIGTSTP || g.passed && s != unix.SIGCONT
	_ = unix.Kill(target, s) // it can only have ended
	if g.suspended && slices.Contains([]syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}, s) {
		_ = unix.Kill(-g.pid, unix.SIGCONT) // one that is stopped would not be told to end
		g.suspended = false
	}
}

// reap collects every child that has ended or was stopped: the command, and
// orphans of its family.
func (g *guardian) reap() error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD || pid == 0:
			g.childless = err == unix.ECHILD
			return nil
		case err != nil:
			return fmt.Errorf("wait for children: %w", err)
		case pid != g.pid || g.ended:
			continue
		case status.Stopped():
			g.suspended = true
			if g.passed && status.StopSignal() == unix.SIGTSTP {
				continue
			}
			if err := g.report(report{Suspended: int(status.StopSignal())}); err != nil {
				return err
			}
		default:
			if err := g.conclude(status); err != nil {
				return err
			}
		}
	}
}

// conclude reports the command's end, and stops what it left behind.
func (g *guardian) conclude(status unix.WaitStatus) error {
	g.ended = true
	e := end{Code: status.ExitStatus(), Cut: g.stopping, Left: len(family(g.pid))}
	if status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	if err := g.report(report{Ended: &e}); err != nil {
		return err
	}
	if e.Left > 0 {
		return g.stop()
	}
	return nil
}

// groupOnly stands for all of a process group, if anybody is in it.
func groupOnly(group int) []int {
	if group == 0 || unix.Kill(-group, 0) == unix.ESRCH {
		return nil
	}
	return []int{-group}
}

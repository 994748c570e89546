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
	lookEvery    = 100 * time.Millisecond // interval of looks for remaining processes
	sweepEvery   = 20 * time.Millisecond  // the same, after they were asked to end
	killEvery    = 5 * time.Millisecond   // interval of kills: a forking process must not be faster
)

// guardianArgs returns the command line for RunGuardian.
func guardianArgs(control, status uintptr, c Command) []string {
	return append([]string{
		strconv.FormatUint(uint64(control), 10), strconv.FormatUint(uint64(status), 10),
		strconv.FormatInt(int64(c.KillAfter), 10), c.Path,
	}, c.Args...)
}

// RunGuardian runs a guardian process. args are those that Start appended to Command.Guardian.
func RunGuardian(args []string) error {
	// The system kills the command when the thread that started it ends, so this thread must last.
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
	return g.runCommand(os.NewFile(uintptr(control), "control"))
}

// guardian is the parent of one command, for one goroutine.
type guardian struct {
	status    *outbox
	killAfter time.Duration
	path      string
	args      []string
	alarm     *alarm

	pid       int   // the command's, and its process group's
	stopAt    int64 // when to ask the command, or its remaining processes, to end
	killAt    int64 // when to kill everything
	stopping  bool  // the command has been asked to end
	killing   bool  // everything is being killed
	ended     bool  // the command has ended and was reaped
	suspended bool  // the command was stopped, and perhaps continued since
	passed    bool  // the command got chubbyctl's SIGTSTP and was not continued: do not report the stop
	childless bool  // the last reapChildren found no children
	immune    bool  // it has reported a process that it may not signal
}

func (g *guardian) runCommand(control io.Reader) (err error) {
	if err := errors.Join(adopt(), rename(guardianName)); err != nil {
		return g.report(report{Failed: err.Error()})
	}
	// The guardian does not pass on its own signals: chubbyctl passes on its, and systemctl stop signals every
	// process of a service.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, forwarded()...)
	//mutant: go func() { for s := range ignored { g.passSignal(s.(syscall.Signal)) } }(); CatchBrokenPipes()
	CatchBrokenPipes()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	orders := make(chan order)
	go readOrders(control, orders) // ends with the pipe or this process
	if g.alarm, err = newAlarm(); err != nil {
		return g.report(report{Failed: err.Error()})
	}
	defer g.alarm.close()
	first, ok := <-orders
	if !ok {
		return errors.New("chubbyctl ended before the command was started")
	}
	// chubbyctl may have been stopped, or lost the lock, before it sent the order.
	if first.KillAt == 0 || first.StopAt <= now() {
		return g.report(report{Failed: ErrLate.Error(), Late: true})
	}
	if err := g.obeyOrder(first); err != nil {
		return err
	}
	if started, err := g.startCommand(); !started {
		return err
	}
	return g.watchFamily(orders, ended)
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

func (g *guardian) startCommand() (bool, error) {
	process, err := g.startProcess()
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		return false, g.report(report{Failed: err.Error(), Errno: int(errno)})
	}
	g.pid = process.Pid
	// reapChildren waits for all children alike, this one included.
	if err := process.Release(); err != nil {
		return true, err
	}
	return true, g.report(report{Started: g.pid})
}

// watchFamily follows orders and the clock until the command and its descendants are gone.
func (g *guardian) watchFamily(orders <-chan order, ended <-chan os.Signal) error {
	sweep := time.NewTicker(time.Hour)
	defer sweep.Stop()
	for {
		switch {
		case g.killing:
			sweep.Reset(killEvery)
		case g.stopping:
			sweep.Reset(sweepEvery)
		case g.ended:
			sweep.Reset(lookEvery)
		}
		var err error
		select {
		case o, ok := <-orders:
			if ok { // reap first: passSignal must see a stop that came before the order
				err = errors.Join(g.reapChildren(), g.obeyOrder(o))
			} else {
				orders = nil
				err = g.stopFamily()
			}
		case <-ended:
		case <-g.alarm.c:
		case <-sweep.C:
		}
		if err = errors.Join(err, g.reapChildren(), g.actOnTime()); err != nil {
			return errors.Join(err, g.killFamily())
		}
		// With children some process is left, even if the list is empty: it can miss the child of a process
		// that forks and ends.
		if g.ended && g.childless && len(family(g.pid)) == 0 {
			return g.report(report{Gone: true})
		}
	}
}

// obeyOrder executes an order. Instants may move either way, but the asking one only closer once the command
// has ended, and the killing one once it has been asked.
func (g *guardian) obeyOrder(o order) error {
	if o.KillAt != 0 {
		switch {
		case g.stopping:
			g.killAt = min(g.killAt, o.KillAt)
		case g.ended:
			g.stopAt, g.killAt = min(g.stopAt, o.StopAt), o.KillAt
		default:
			g.stopAt, g.killAt = o.StopAt, o.KillAt
		}
		if err := g.setAlarm(); err != nil {
			return err
		}
	}
	if o.Signal != 0 && !(o.Unstopped && g.stopping) {
		g.passSignal(syscall.Signal(o.Signal))
	}
	if o.Stop || g.ended && slices.Contains(Interrupts(), os.Signal(syscall.Signal(o.Signal))) {
		return g.stopFamily()
	}
	return nil
}

func (g *guardian) setAlarm() error {
	if g.stopping {
		return g.alarm.set(g.killAt)
	}
	return g.alarm.set(g.stopAt)
}

func (g *guardian) actOnTime() error {
	instant := now()
	if !g.stopping && instant >= g.stopAt {
		if err := g.stopFamily(); err != nil {
			return err
		}
	}
	if g.stopping && instant >= g.killAt {
		g.killing = true
	}
	if g.killing {
		return g.killFamily()
	}
	return nil
}

// stopFamily asks the command and its descendants to end, and sets the instant of killing.
func (g *guardian) stopFamily() error {
	if g.stopping {
		return nil
	}
	g.stopping = true
	instant := now()
	g.killAt = min(g.killAt, instant+int64(g.killAfter))
	r := report{Stopping: max(g.killAt-instant, 1)}
	if g.ended {
		r.Left = len(family(g.pid))
	}
	err := g.report(r)
	for _, pid := range g.signalTargets() {
		// A stopped process takes the SIGTERM when it is continued.
		err = errors.Join(err, g.signal(pid, unix.SIGTERM), g.signal(pid, unix.SIGCONT))
	}
	return errors.Join(err, g.setAlarm())
}

// signalTargets returns where to send a signal so that every process gets it once: the command's process group,
// and descendants outside it.
func (g *guardian) signalTargets() []int {
	all := family(g.pid)
	if g.ended {
		return all // another group may soon have the number
	}
	others := slices.DeleteFunc(all, func(pid int) bool {
		group, err := unix.Getpgid(pid)
		return pid == -g.pid || err == nil && group == g.pid
	})
	return append([]int{-g.pid}, others...)
}

// killFamily kills all processes. Those forked meanwhile are killed the next time.
func (g *guardian) killFamily() error {
	var err error
	if !g.ended {
		err = g.signal(-g.pid, unix.SIGKILL)
	}
	for _, pid := range family(g.pid) {
		err = errors.Join(err, g.signal(pid, unix.SIGKILL))
	}
	return err
}

// signal sends a signal. It reports the first refusal of the system.
func (g *guardian) signal(pid int, s syscall.Signal) error {
	if err := unix.Kill(pid, s); err == unix.EPERM && !g.immune {
		g.immune = true
		return g.report(report{Immune: max(pid, -pid)})
	}
	return nil // fails only if it has ended
}

// passSignal sends the command a signal of chubbyctl's. Signals that a terminal sends to its whole foreground
// go to the command's process group; its children may not expect the others.
func (g *guardian) passSignal(s syscall.Signal) {
	if g.ended || g.pid == 0 {
		return
	}
	target := g.pid
	if slices.Contains([]syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH}, s) {
		target = -g.pid
	}
	g.passed = s == unix.SIGTSTP || g.passed && s != unix.SIGCONT
	_ = unix.Kill(target, s) // fails only if it has ended
	//mutant: if g.suspended && false && slices.Contains([]syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}, s) {
	if g.suspended && slices.Contains([]syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}, s) {
		_ = unix.Kill(-g.pid, unix.SIGCONT) // a stopped process takes the signal when it is continued
		g.suspended = false
	}
}

// reapChildren waits for all ended or stopped children: the command, and orphans among its descendants.
func (g *guardian) reapChildren() error {
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
			if err := g.reportEnd(status); err != nil {
				return err
			}
		}
	}
}

// reportEnd reports the command's end. Its remaining processes get time to end: a logger still reads its last
// output.
func (g *guardian) reportEnd(status unix.WaitStatus) error {
	g.ended = true
	e := Result{Code: status.ExitStatus(), Cut: g.stopping}
	if status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	g.stopAt = min(g.stopAt, now()+int64(g.killAfter))
	return errors.Join(g.report(report{Ended: &e}), g.setAlarm())
}

// groupOnly stands for a whole process group, unless it is empty.
func groupOnly(group int) []int {
	if group == 0 || unix.Kill(-group, 0) == unix.ESRCH {
		return nil
	}
	return []int{-group}
}

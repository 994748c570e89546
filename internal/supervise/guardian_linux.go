package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alarm rings at an instant of the boot-time clock, which runs during suspend, unlike Go's timers. An instant
// during suspend rings right after.
type alarm struct {
	c    chan struct{}
	file *os.File
	done chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(clock, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	a := &alarm{c: make(chan struct{}, 1), file: os.NewFile(uintptr(fd), "timer"), done: make(chan struct{})}
	go a.read()
	return a, nil
}

func (a *alarm) read() {
	defer close(a.done)
	var count [8]byte
	for {
		if _, err := a.file.Read(count[:]); err != nil {
			return
		}
		select {
		case a.c <- struct{}{}:
		default: // it has rung, unread
		}
	}
}

// set makes the alarm ring at an instant, instead of the one set before.
func (a *alarm) set(instant int64) error {
	raw, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(instant, 1))} // zero would disarm it
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
	if err == nil {
		err = failed
	}
	return err
}

func (a *alarm) close() {
	a.file.Close()
	<-a.done
}

// Limits says, for people, what the guardian cannot do on this system, or "".
func Limits() string {
	if _, ok := processes(); !ok {
		return "/proc does not list the processes of this system: if the lock is lost, processes that CMD started and that left its process group are not stopped"
	}
	return ""
}

// adopt makes this process the parent of all orphans among its descendants.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans (PR_SET_CHILD_SUBREAPER): %w", err)
	}
	return nil
}

// attributes puts a command into its own process group. The end of the starting thread kills it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
}

// guardianAttributes puts a guardian into its own process group. The end of this process (or, harmlessly, of
// the starting thread) continues a stopped one.
func guardianAttributes() *syscall.SysProcAttr {
	//mutant: return &syscall.SysProcAttr{Setpgid: true}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGCONT}
}

// rename renames this process, to protect the guardian from killall -STOP chubbyctl.
func rename(name string) error { return os.WriteFile("/proc/self/comm", []byte(name), 0) }

// family lists this process's living descendants, except its children others and theirs. group is the command's
// process group, for systems without a list.
func family(group int, others ...int) []int {
	all, ok := processes()
	if !ok {
		return groupOnly(group)
	}
	for _, pid := range others {
		delete(all, pid)
	}
	return descendants(all, os.Getpid())
}

func children() []int {
	all, _ := processes()
	var own []int
	for pid, p := range all {
		if p.parent == os.Getpid() {
			own = append(own, pid)
		}
	}
	return own
}

type process struct {
	parent int
	alive  bool // at least one of its threads runs
}

// processes reads the table of processes. It reports false if this process is missing: /proc hides processes,
// or is of another PID name space.
func processes() (map[int]process, bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	all := make(map[int]process, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	_, ok := all[os.Getpid()]
	return all, ok
}

// descendants returns the living processes below root. Parents between may have ended.
func descendants(all map[int]process, root int) []int {
	children := make(map[int][]int)
	for pid, p := range all {
		children[p.parent] = append(children[p.parent], pid)
	}
	var found []int
	for next := children[root]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		if all[pid].alive {
			found = append(found, pid)
		}
	}
	return found
}

func parentOf(pid int) (int, bool) {
	p, ok := readProcess(pid)
	return p.parent, ok
}

// Fields of /proc/PID/stat, counted from 0 after the name.
const (
	statState   = 0
	statParent  = 1
	statThreads = 17
)

func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// pid (name) state ppid ..., where the name may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= statThreads {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[statParent]))
	if err != nil {
		return process{}, false
	}
	return process{parent: parent, alive: alive(fields[statState][0], string(fields[statThreads]))}, true
}

// alive reports whether a process still runs. State Z is the main thread's: after pthread_exit the other
// threads run on. An ended process that waits to be reaped has one thread.
func alive(state byte, threads string) bool {
	switch state {
	case 'X', 'x':
		return false
	case 'Z':
		n, err := strconv.Atoi(threads)
		return err == nil && n > 1
	}
	return true
}

// Scan measures how long listing this process's descendants takes, which the guardian repeats while it kills
// them. It returns the shorter of two measurements, to ignore a pause of the process or the machine.
func Scan() time.Duration {
	measure := func() time.Duration {
		begun := now()
		family(0)
		return time.Duration(now() - begun)
	}
	return min(measure(), measure())
}

// lastSignal is the highest real-time signal.
const lastSignal = syscall.Signal(64)

// notForwardedHere are this system's signals that Go programs do not get: the C libraries own three real-time
// signals.
func notForwardedHere() []syscall.Signal { return []syscall.Signal{unix.SIGSTKFLT, 32, 33, 34} }

func unnamed() string { return "and the first real-time signal (RTMIN, 34)" }

// action is the kernel's form of a signal's action. All zeros are the default on every architecture.
type action [64]byte

// exchange sets a signal's action behind the Go runtime, unless to is nil, and returns the old one.
func exchange(s syscall.Signal, to *action) (before action, ok bool) {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&before)), 8, 0, 0) // 8 bytes of signals in a set
	return before, errno == 0
}

// isIgnored reports whether this process ignores a signal. The handler comes first in an action, and SIG_IGN is
// 1. (On MIPS flags come first: the answer is no.)
func isIgnored(s syscall.Signal) bool {
	a, ok := exchange(s, nil)
	return ok && *(*uintptr)(unsafe.Pointer(&a)) == 1
}

// stopSignal returns the signal with which this process stops itself, and a function to call when it goes on.
// It is SIGTSTP, so that a parent sees the terminal's stop. The Go runtime swallows a SIGTSTP once passed to
// signal.Notify, so stopSignal restores the default action meanwhile.
func stopSignal() (s syscall.Signal, restore func()) {
	before, ok := exchange(unix.SIGTSTP, new(action))
	if !ok {
		return unix.SIGSTOP, func() {}
	}
	return unix.SIGTSTP, func() { exchange(unix.SIGTSTP, &before) }
}

package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits says, for people, what the guardian cannot do on this system. It is empty if
// nothing is missing.
func Limits() string {
	if _, ok := processes(); !ok {
		return "/proc does not list the processes of this system: if the lock is lost, processes that CMD started and that left its process group are not stopped"
	}
	return ""
}

// adopt makes this process the parent of every orphan among its descendants.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans (PR_SET_CHILD_SUBREAPER): %w", err)
	}
	return nil
}

// attributes puts a command into a process group of its own and has it killed
// when the thread that starts it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
}

// guardianAttributes puts a guardian into a process group of its own. If it is stopped,
// the end of this process continues it. (So does the end of the thread that starts it,
// which does no harm.)
func guardianAttributes() *syscall.SysProcAttr {
	//mutant: return &syscall.SysProcAttr{Setpgid: true}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGCONT}
}

// rename gives this process a name of its own, so that killall -STOP chubbyctl does not
// stop the guardian too.
func rename(name string) error { return os.WriteFile("/proc/self/comm", []byte(name), 0) }

// family lists the living descendants of this process, except others, which are
// children of it, and the descendants of those. group is the command's process group; it
// is used only where processes cannot be listed.
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

// children lists the children of this process, also those that have ended.
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

// process is what /proc says of one.
type process struct {
	parent int
	alive  bool // at least one of its threads runs
}

// processes reads the table of processes. It reports false if this process is not in
// the table: /proc hides processes then, or belongs to another PID name space.
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

// descendants returns the living processes whose chain of parents leads to root. The
// parents in between may have ended.
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

// parentOf returns the parent of a process.
func parentOf(pid int) (int, bool) {
	p, ok := readProcess(pid)
	return p.parent, ok
}

// Fields of /proc/PID/stat. The first one after the name is number 0.
const (
	statState   = 0
	statParent  = 1
	statThreads = 17
)

// readProcess reads one process.
func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// pid (name) state ppid ..., where the name may hold anything.
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

// alive reports whether a process still runs. State Z is that of the main thread alone:
// after pthread_exit in main the other threads go on, and threads counts them. A process
// that has ended and waits to be reaped has one thread.
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

// Scan measures how long it takes to list the descendants of this process. The guardian
// lists them again and again while it kills them. It takes the shorter of two measurements: one pause
// of this process, or of the machine, is not how slow it is.
func Scan() time.Duration {
	measure := func() time.Duration {
		begun := now()
		family(0)
		return time.Duration(now() - begun)
	}
	return min(measure(), measure())
}

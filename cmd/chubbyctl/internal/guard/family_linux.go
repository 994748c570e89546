package guard

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits says what this system does not let the guardian promise; empty if
// nothing is missing.
func Limits() string { return "" }

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

// rename gives this process a name of its own, so that what is done to every
// process named chubbyctl (killall -STOP) is not done to its guardian.
func rename(name string) error { return os.WriteFile("/proc/self/comm", []byte(name), 0) }

// family lists the living descendants of this process. The process group is
// only of use where they cannot be listed.
func family(group int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return groupOnly(group)
	}
	parents := make(map[int]int, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			parents[pid] = parent
		}
	}
	self := os.Getpid()
	if _, ok := parents[self]; !ok {
		return groupOnly(group) // a /proc that hides processes, or is of another PID name space
	}
	return descendants(parents, self)
}

// descendants returns those whose chain of parents leads to root.
func descendants(parents map[int]int, root int) []int {
	children := make(map[int][]int)
	for pid, parent := range parents {
		children[parent] = append(children[parent], pid)
	}
	var found []int
	for next := children[root]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		found = append(found, pid)
	}
	return found
}

// parentOf reads who started a process, unless it has ended already and only
// waits to be reaped.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// pid (name) state ppid ..., where the name may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"
)

// Limits says, for people, what the guardian cannot do on this system. It is empty if
// nothing is missing.
func Limits() string {
	return "this system has no child subreapers: if the lock is lost, processes that CMD started and that left its process group are not stopped"
}

func adopt() error { return nil }

// attributes puts a command into a process group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guardianAttributes puts a guardian into a process group of its own.
func guardianAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func rename(string) error { return nil }

// family stands for all processes that can be reached here: the process group.
func family(group int, _ ...int) []int { return groupOnly(group) }

// children lists nothing: on this system a process group is killed, not single processes.
func children() []int { return nil }

// parentOf reports false: on this system only a debugger learns it.
func parentOf(int) (int, bool) { return 0, false }

// Scan returns 0: on this system no processes are listed.
func Scan() time.Duration { return 0 }

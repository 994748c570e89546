//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"
)

// Limits says, for people, what the guardian cannot do on this system, or "".
func Limits() string {
	return "this system has no child subreapers: if the lock is lost, processes that CMD started and that left its process group are not stopped"
}

func adopt() error { return nil }

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// guardianAttributes puts a guardian into its own process group.
func guardianAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func rename(string) error { return nil }

// family returns the reachable processes: the process group.
func family(group int, _ ...int) []int { return groupOnly(group) }

// children returns nothing: this system kills process groups, not single processes.
func children() []int { return nil }

// parentOf reports false: on this system only a debugger learns it.
func parentOf(int) (int, bool) { return 0, false }

// Scan returns 0: this system does not list processes.
func Scan() time.Duration { return 0 }

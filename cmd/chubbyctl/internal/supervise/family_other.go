//go:build unix && !linux

package supervise

import (
	"syscall"
	"time"
)

// Limits says what this system does not let the guardian promise; empty if
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

// family is all that can be reached here: the process group.
func family(group int, _ ...int) []int { return groupOnly(group) }

// children are of no use here: what is killed is a group.
func children() []int { return nil }

// parentOf is not to be had here without the privileges of a debugger.
func parentOf(int) (int, bool) { return 0, false }

// Scan is about the time that it takes to find CMD's processes: nothing is
// searched here.
func Scan() time.Duration { return 0 }

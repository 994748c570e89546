package main

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What seccomp_unotify(2) receives and sends.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		at         uint64
		args       [6]uint64
	}
	notificationReply struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

const (
	receiveNotification = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	sendNotification    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

// slowSyncs makes each fsync and fdatasync of all processes that the calling goroutine starts from now on so much longer, and
// returns how many there were. The kernel has such a call wait until this process lets it go on, and no other call for anything.
// (strace, which stops processes, leaves out the others of most threads only: reads of ZooKeeper were ten times slower under it.)
func slowSyncs(longer time.Duration) (*atomic.Int64, error) {
	runtime.LockOSThread() // a process has the filter of the thread that starts it; the other threads here have none
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("prctl: %w", err)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_FSYNC},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_FDATASYNC},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV // signals do not begin the wait anew
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return nil, fmt.Errorf("make syncs longer, which needs seccomp of Linux 5.19: %w", errno)
	}
	count := new(atomic.Int64)
	go func() { // ends with this process
		for {
			var one notification
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, listener, receiveNotification, uintptr(unsafe.Pointer(&one)))
			if errors.Is(errno, unix.EINTR) || errors.Is(errno, unix.ENOENT) { // the caller was killed
				continue
			}
			if errno != 0 {
				return
			}
			count.Add(1)
			time.AfterFunc(longer, func() {
				reply := notificationReply{id: one.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
				_, _, _ = unix.Syscall(unix.SYS_IOCTL, listener, sendNotification, uintptr(unsafe.Pointer(&reply))) // fails if it was killed
			})
		}
	}()
	return count, nil
}

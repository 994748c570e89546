//go:build darwin || dragonfly || freebsd || openbsd

package bootclock

import "golang.org/x/sys/unix"

const clock = unix.CLOCK_MONOTONIC

package bootclock

import "golang.org/x/sys/unix"

const clock = unix.CLOCK_BOOTTIME // every Linux since 2.6.39 has it, and Go needs a later one

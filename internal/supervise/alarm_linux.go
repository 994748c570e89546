package supervise

import (
	"fmt"
	"os"

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

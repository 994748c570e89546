//go:build unix && !linux

package supervise

import "time"

// alarm rings at an instant of now's clock. Go's timers may stop in suspend, so it reads the clock ten times a
// second.
type alarm struct {
	c      chan struct{}
	change chan int64
	done   chan struct{}
}

func newAlarm() (*alarm, error) {
	a := &alarm{c: make(chan struct{}, 1), change: make(chan int64), done: make(chan struct{})}
	go a.watch()
	return a, nil
}

func (a *alarm) watch() {
	defer close(a.done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	at, armed := int64(0), false
	for {
		select {
		case instant, ok := <-a.change:
			if !ok {
				return
			}
			at, armed = instant, true
		case <-tick.C:
		}
		if armed && now() >= at {
			armed = false
			select {
			case a.c <- struct{}{}:
			default: // it has rung, unread
			}
		}
	}
}

// set makes the alarm ring at an instant, instead of the one set before.
func (a *alarm) set(instant int64) error {
	a.change <- instant
	return nil
}

func (a *alarm) close() {
	close(a.change)
	<-a.done
}

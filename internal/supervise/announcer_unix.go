//go:build unix

package supervise

import "time"

// announcer notifies the user in its own goroutine, because a write may block: on a stopped terminal (Ctrl-S)
// or in a pager. The goroutine has ended when close returns.
type announcer struct {
	notify  func(text string)
	waiting chan notice
	done    chan struct{}
}

type notice struct {
	text  string
	given chan struct{} // closed when notify has returned
}

const (
	maxNotices  = 16                     // maximum of pending notices; more are dropped
	noticeBound = 200 * time.Millisecond // how long to wait for a notice that is useful only before its cause
)

func newAnnouncer(notify func(text string)) *announcer {
	a := &announcer{notify: notify, waiting: make(chan notice, maxNotices), done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for n := range a.waiting {
			a.notify(n.text)
			close(n.given)
		}
	}()
	return a
}

// add queues a notice. The channel closes when it is given, perhaps never.
func (a *announcer) add(text string) (given <-chan struct{}) {
	n := notice{text, make(chan struct{})}
	select {
	case a.waiting <- n:
	default:
	}
	return n.given
}

func (a *announcer) addAndWait(text string) {
	select {
	case <-a.add(text):
	case <-time.After(noticeBound):
	}
}

// close waits until all notices are given. add must not be called after it.
func (a *announcer) close() {
	close(a.waiting)
	<-a.done
}

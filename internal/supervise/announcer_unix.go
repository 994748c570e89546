//go:build unix

package supervise

import "time"

// announcer gives notices to the user in a goroutine of its own, because writing one
// may block: the terminal may be stopped (Ctrl-S), or a pager be on another page. The
// goroutine has ended when close returns.
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
	maxNotices  = 16                     // that wait to be given; those that come then are dropped
	noticeBound = 200 * time.Millisecond // how long to wait for a notice that is of use only before what follows it
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

// add queues a notice. The channel is closed when the notice has been given, which
// may be never.
func (a *announcer) add(text string) (given <-chan struct{}) {
	n := notice{text, make(chan struct{})}
	select {
	case a.waiting <- n:
	default:
	}
	return n.given
}

// addAndWait queues a notice, and waits a moment until it has been given.
func (a *announcer) addAndWait(text string) {
	select {
	case <-a.add(text):
	case <-time.After(noticeBound):
	}
}

// close waits until all notices have been given. add must not be called after it.
func (a *announcer) close() {
	close(a.waiting)
	<-a.done
}

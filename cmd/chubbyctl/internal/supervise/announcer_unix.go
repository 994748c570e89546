//go:build unix

package supervise

import "time"

// announcer tells the user what should be known, without keeping anybody from what
// is to be done: whoever reads it may have stopped the terminal (Ctrl-S), or look
// at another page. Its goroutine has ended when close returns.
type announcer struct {
	tell    func(text string)
	waiting chan notice
	done    chan struct{}
}

type notice struct {
	text string
	told chan struct{} // closed when the user was told
}

const (
	mostNotices = 16                     // wait to be told; of a kind that comes too often, the rest is not told
	noticeBound = 200 * time.Millisecond // for one that is of use only before what follows it
)

func newAnnouncer(tell func(text string)) *announcer {
	a := &announcer{tell: tell, waiting: make(chan notice, mostNotices), done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for one := range a.waiting {
			a.tell(one.text)
			close(one.told)
		}
	}()
	return a
}

// add tells one after those before it. The channel is closed when the user was
// told, which may be never.
func (a *announcer) add(text string) (told <-chan struct{}) {
	one := notice{text, make(chan struct{})}
	select {
	case a.waiting <- one:
	default:
	}
	return one.told
}

// tellNow is add, and waits a moment until the user was told.
func (a *announcer) tellNow(text string) {
	select {
	case <-a.add(text):
	case <-time.After(noticeBound):
	}
}

// close waits until all are told. None may be added any more.
func (a *announcer) close() {
	close(a.waiting)
	<-a.done
}

package recipes

import (
	"sync"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// busyItem is an item that was locked when it was tried, or could not be used, and what is waited for
// since.
type busyItem struct {
	handle *client.Handle // open for lock-vacant; nil if it could not be opened
	stop   func()         // ends the watch
	timer  *time.Timer    // stirs it; nil before the first

	reported bool           // as one that cannot be used
	content  api.Generation // of the contents, when it was listed last
	delayed  api.Generation // of the contents whose delay is waited for
	waited   api.Generation // of the contents whose delay was waited for to its end

	mu      sync.Mutex // guards what follows
	stirred bool       // it is to be tried again
	rung    bool       // the timer has ended since it was set
	set     int        // how often the timer was
}

// settle reports whether the item is to be tried again: there is reason to, or it was written since.
func (b *busyItem) settle(content api.Generation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.stirred || b.content != content
	b.stirred, b.content = false, content
	return was
}

func (b *busyItem) stir() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stirred = true
}

// reset takes note that the timer is set, and returns how often it was.
func (b *busyItem) reset() (set int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rung = false
	b.set++
	return b.set
}

// ring stirs the item because its time has come, unless the timer was set again in this moment. It reports which.
func (b *busyItem) ring(set int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set != set {
		return false
	}
	b.stirred, b.rung = true, true
	return true
}

func (b *busyItem) hasRung() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}

// end ends what waits for the item. It returns its handle, if there is one.
func (b *busyItem) end() []*client.Handle {
	b.stop()
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.handle == nil {
		return nil
	}
	return []*client.Handle{b.handle}
}

package loglimit

import (
	"sync"
	"time"
)

// Every is the time in which at most one line is logged.
const Every = time.Second

// Refusals lets one line in Every be logged, with how many refusals there were
// since the one before. Its zero value is ready, and it is safe for concurrent use.
type Refusals struct {
	mu    sync.Mutex // guards what follows
	count int        // refusals since the last line
	quiet bool       // the last line was logged less than Every ago
}

// Next counts a refusal, and reports whether to log it, and how many there were.
func (l *Refusals) Next() (refused int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if l.quiet {
		return 0, false
	}
	refused, l.count, l.quiet = l.count, 0, true
	time.AfterFunc(Every, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.quiet = false
	})
	return refused, true
}

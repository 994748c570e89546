package main

import (
	"bytes"
	"io"
	"os/signal"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/supervise"
)

// speaker writes lines for people to standard error, one at a time, and keeps
// nobody for long from what is to be done. Who reads them may have stopped (a pager
// on an earlier page, a log that hangs), and a lock is renewed, held or waited for
// meanwhile. Its goroutine ends when all is written, which finish waits for.
type speaker struct {
	w io.Writer

	mu    sync.Mutex // guards what follows
	lines [][]byte   // to be written; of very many, the first ones are not: the last say how it ended
	idle  chan struct{}
}

const (
	mostLines   = 64                     // wait to be written
	speechBound = 200 * time.Millisecond // for writing a line before what follows it
	lastBound   = 2 * time.Second        // for the last words to one who has asked for the end
)

// Write has a line written, and waits a moment for that, unless one before it is
// stuck. It never fails: there is nowhere to report it.
func (s *speaker) Write(line []byte) (int, error) {
	s.mu.Lock()
	stuck := s.idle != nil
	s.lines = append(s.lines, bytes.Clone(line))
	s.lines = s.lines[max(0, len(s.lines)-mostLines):]
	if !stuck {
		s.idle = make(chan struct{})
		go s.write(s.idle)
	}
	idle := s.idle
	s.mu.Unlock()
	if !stuck {
		within(idle, speechBound)
	}
	return len(line), nil
}

// write writes what there is, and ends.
func (s *speaker) write(idle chan<- struct{}) {
	defer close(idle)
	for {
		s.mu.Lock()
		if len(s.lines) == 0 {
			s.idle = nil
			s.mu.Unlock()
			return
		}
		line := s.lines[0]
		s.lines = s.lines[1:]
		s.mu.Unlock()
		_, _ = s.w.Write(line)
	}
}

// finish waits until everything is written, when nothing else is left to be done:
// for one who has asked for the end, not for long; else until somebody reads it, or
// a signal ends this process.
func (s *speaker) finish(asked bool) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	switch {
	case idle == nil:
		return
	case asked:
		within(idle, lastBound)
		return
	}
	signal.Reset(supervise.Interrupts()...)
	<-idle
}

// within reports whether something is done within a time.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

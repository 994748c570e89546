package testbed

import (
	"strings"
	"sync"
)

// Lines keeps what is logged, line by line. It is for any goroutine, and its zero
// value is ready.
type Lines struct {
	mu    sync.Mutex // guards lines
	lines []string
}

// Write implements io.Writer: a logger writes one line at a time.
func (c *Lines) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, strings.ReplaceAll(string(p), `\"`, ""))
	return len(p), nil
}

// Take returns the lines since the last call, without escaped quotes.
func (c *Lines) Take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.lines
	c.lines = nil
	return lines
}

package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// slowFields is how long writers waited for a client that had fallen silent.
type slowFields struct {
	File     string  `json:"file"`
	SilentS  float64 `json:"silent_s"`
	Writes   int     `json:"writes"` // of the drill's own writer; 0 with --file
	LongestS float64 `json:"longest_wait_s"`
	AtMostS  float64 `json:"at_most_s"` // the cache lease: no write waits longer for one client
}

// silence holds back what a client sends and receives, as if its process were stopped.
type silence struct {
	mu    sync.Mutex // guards over
	over  chan struct{}
	quiet bool
}

// begin begins the silence.
func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet, s.over = true, make(chan struct{})
}

// end ends it.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet {
		s.quiet = false
		close(s.over)
	}
}

// wait waits while there is silence, and not longer than the connection exists.
func (s *silence) wait(closed <-chan struct{}) {
	s.mu.Lock()
	quiet, over := s.quiet, s.over
	s.mu.Unlock()
	if !quiet {
		return
	}
	select {
	case <-over:
	case <-closed:
	}
}

// silentConn is a connection of a client that may be silent.
type silentConn struct {
	net.Conn
	silence *silence
	once    sync.Once
	closed  chan struct{}
}

// Read implements net.Conn. What arrives in the silence is given to nobody before its end.
func (c *silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.silence.wait(c.closed)
	return n, err
}

// Write implements net.Conn.
func (c *silentConn) Write(p []byte) (int, error) {
	c.silence.wait(c.closed)
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// fallSilent has a session of its own cache the file and fall silent, and measures how long writers wait for it.
func (o *drillOptions) fallSilent(ctx context.Context, r *drillReport) error {
	var s silence
	preparing, cancel := o.withTimeout(ctx)
	defer cancel()
	cfg := o.config(o.cell)
	cfg.NoCache = false
	dial := cfg.Dialer
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return &silentConn{Conn: conn, silence: &s, closed: make(chan struct{})}, nil
	}
	slow, err := client.New(preparing, cfg)
	if err != nil {
		return err
	}
	defer o.closeSession(ctx, slow)
	defer s.end() // before it says goodbye
	writer, err := client.New(preparing, o.config(o.cell))
	if err != nil {
		return err
	}
	defer o.closeSession(ctx, writer)
	file := o.file
	var own *client.Handle
	if file == "" {
		if own, err = o.openOwn(preparing, writer, "cached"); err != nil {
			return err
		}
		file = own.Path()
	}
	h, err := slow.Open(preparing, file, client.OpenOptions{Read: true, Kind: api.File})
	if err != nil {
		return err
	}
	if _, _, err := h.Contents(preparing); err != nil {
		return err
	}
	r.Slow = &slowFields{File: file, SilentS: term.Seconds(o.length), AtMostS: term.Seconds(api.CacheLease)}
	watch := stopwatch()
	// A read renews the cache lease, so that it is as fresh as that of a client that works.
	if _, _, err := h.Contents(preparing); err != nil {
		return err
	}
	s.begin()
	silent, cancelSilent := context.WithTimeout(ctx, o.length)
	defer cancelSilent()
	if own != nil {
		err = o.writeAgainst(silent, own, r)
	} else {
		err = o.watchWriters(silent, writer.Cell(), file, slow.Session(), r)
	}
	if err == nil {
		pauseFor(silent, o.length)
	}
	s.end()
	r.Slow.SilentS, r.Slow.LongestS = term.Seconds(watch()), term.Seconds(r.longest)
	return err
}

// writeAgainst writes the file until the silence ends.
func (o *drillOptions) writeAgainst(silent context.Context, own *client.Handle, r *drillReport) error {
	for silent.Err() == nil {
		watch := stopwatch()
		writing, cancel := o.withTimeout(context.WithoutCancel(silent))
		_, err := own.SetContents(writing, []byte("drill"))
		cancel()
		if err != nil {
			return err
		}
		r.longest, r.Slow.Writes = max(r.longest, watch()), r.Slow.Writes+1
		pauseFor(silent, drillLookAgain)
	}
	return nil
}

// watchWriters looks how long writes of others wait for the silent session.
func (o *drillOptions) watchWriters(silent context.Context, c *client.Cell, file string, slow api.SessionID, r *drillReport) error {
	for silent.Err() == nil {
		e, err := c.Explain(silent, file)
		if err != nil && silent.Err() == nil {
			return err
		}
		for _, one := range e.Cachers {
			if one.Session == slow {
				r.longest = max(r.longest, one.Waiting)
			}
		}
		pauseFor(silent, 2*lossLook)
	}
	if cause := context.Cause(silent); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

var _ net.Conn = (*silentConn)(nil)

package main

import (
	"context"
	"net"
	"sync"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

type slowFields struct {
	File     string  `json:"file"`
	SilentS  float64 `json:"silent_s"`
	Writes   int     `json:"writes"` // of the drill's own session; 0 with --file
	LongestS float64 `json:"longest_wait_s"`
	AtMostS  float64 `json:"at_most_s"` // the cache lease: no write waits longer for one client
}

// slowClient is a session with a cached file. While hush is full it receives and sends nothing, like a stopped
// process.
type slowClient struct {
	slowFields
	*drillOptions
	hush   chan struct{}
	speak  func() // ends the silence
	client *client.Client
}

func (o *drillOptions) openSlow(ctx context.Context, file string) (*slowClient, error) {
	s := &slowClient{drillOptions: o, hush: make(chan struct{}, 1)}
	s.File, s.AtMostS = file, term.Seconds(api.CacheLease)
	s.speak = sync.OnceFunc(func() { <-s.hush })
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
		return hushedConn{conn, s}, nil
	}
	var err error
	if s.client, err = client.New(ctx, cfg); err != nil {
		return nil, err
	}
	h, err := s.client.Open(ctx, file, client.OpenOptions{Read: true, Kind: api.File})
	for err == nil && s.client.Stats().Cache.Hits == 0 { // it may have no cache lease yet
		_, _, err = h.Contents(ctx)
		sleep(ctx, drillPace)
	}
	o.own = append(o.own, s.client.Session())
	if s.hush <- struct{}{}; err != nil {
		s.close(ctx)
	}
	return s, err
}

func (s *slowClient) close(ctx context.Context) {
	s.speak()
	s.closeSession(ctx, s.client)
}

// wait waits for the length of the silence. With --file it measures how long others' writes wait.
func (s *slowClient) wait(ctx context.Context, c *client.Client) error {
	defer s.speak()
	watch := stopwatch()
	for watch() < s.length && !hasEnded(ctx) {
		if s.file != "" {
			e, err := c.Cell().Explain(ctx, s.File)
			if err != nil {
				return err
			}
			for _, one := range e.Cachers {
				if one.Session == s.client.Session() {
					s.LongestS = max(s.LongestS, term.Seconds(one.Waiting))
				}
			}
		}
		sleep(ctx, min(drillLook, s.length-watch()))
	}
	s.SilentS = term.Seconds(watch())
	return context.Cause(ctx)
}

type hushedConn struct {
	net.Conn
	of *slowClient
}

func (c hushedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pass()
	return n, err
}

func (c hushedConn) Write(p []byte) (int, error) {
	c.pass()
	return c.Conn.Write(p)
}

func (c hushedConn) pass() {
	c.of.hush <- struct{}{}
	<-c.of.hush
}

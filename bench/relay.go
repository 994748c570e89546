package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Processes listen at thisHost. Those that are taken apart reach each other at farHost, where a relay has the same port.
const (
	thisHost = "127.0.0.1"
	farHost  = "127.0.0.2"
)

// maxQueued bounds the pieces that are on their way in one direction of a connection. A piece is what one read returns, so this
// is far more than what is sent within half a round trip.
const maxQueued = 4096

// relays delay what processes send each other: one relay before the port of each.
type relays struct {
	trip time.Duration
	wait sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]bool // listeners and connections; guarded by mu
}

// relay starts a relay before each address, and returns by which addresses others reach it: the same ones, and no relays, if
// nothing is far.
func (p place) relay(addresses []string) (_ *relays, known []string, err error) {
	if p.Trip <= 0 {
		return nil, addresses, nil
	}
	r := &relays{trip: p.Trip, open: map[io.Closer]bool{}}
	for _, to := range addresses {
		_, port, err := net.SplitHostPort(to)
		if err != nil {
			return nil, nil, errors.Join(err, r.close())
		}
		address := net.JoinHostPort(farHost, port)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return nil, nil, errors.Join(err, r.close())
		}
		r.keep(listener)
		r.wait.Go(func() { r.serve(listener, address, to) })
		known = append(known, address)
	}
	return r, known, nil
}

// close ends all connections, and returns when nothing is passed on any more.
func (r *relays) close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		_ = c.Close() // nobody waits for what is on its way
	}
	r.mu.Unlock()
	r.wait.Wait()
	return nil
}

// keep remembers what close closes, and closes it at once afterwards.
func (r *relays) keep(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return
	}
	r.open[c] = true
}

// drop closes what keep has remembered.
func (r *relays) drop(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	_ = c.Close()
}

func (r *relays) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// lookEvery is how long a relay waits before it looks again whether somebody listens behind it.
const lookEvery = 5 * time.Millisecond

// serve relays the connections to an address while somebody listens there. Else it refuses them, as the kernel of the machine there
// would: systems draw conclusions from that.
func (r *relays) serve(listener net.Listener, address, to string) {
	if !listens(to) {
		r.drop(listener) // it was a proof that the address is free
	}
	for {
		r.accept(listener, to)
		for up := false; !up; {
			time.Sleep(lookEvery)
			if r.isClosed() {
				return
			}
			if !listens(to) {
				continue
			}
			if next, err := net.Listen("tcp", address); err == nil {
				listener, up = next, true
				r.keep(listener)
			}
		}
	}
}

func listens(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// accept relays connections until its listener is closed: by close, or because nobody listens behind it any more.
func (r *relays) accept(listener net.Listener, to string) {
	gone := func() {
		if !listens(to) {
			r.drop(listener)
		}
	}
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		r.keep(near)
		far, err := net.Dial("tcp", to)
		if err != nil {
			r.drop(near)
			r.drop(listener)
			continue
		}
		r.keep(far)
		r.wait.Go(func() {
			// Over a real link the one who connects waits for a round trip before it sends.
			first := time.Now().Add(r.trip)
			var both sync.WaitGroup
			both.Go(func() { r.carry(near, far, first) })
			both.Go(func() { r.carry(far, near, first.Add(-r.trip/2)); gone() })
			both.Wait()
			r.drop(near)
			r.drop(far)
		})
	}
}

// piece is what one read returned; without bytes it is the end.
type piece struct {
	bytes []byte
	due   time.Time
}

// carry passes on what comes from one connection to another, half a round trip later and not before half a round trip after
// first. How much is on its way at once hardly matters: it bounds no rate.
func (r *relays) carry(from, to net.Conn, first time.Time) {
	queue := make(chan piece, maxQueued)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(queue)
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			now := time.Now()
			if now.Before(first) {
				now = first
			}
			queue <- piece{append([]byte(nil), buffer[:n]...), now.Add(r.trip / 2)}
			if err != nil {
				return
			}
		}
	})
	for p := range queue {
		time.Sleep(time.Until(p.due))
		if len(p.bytes) == 0 {
			continue
		}
		if _, err := to.Write(p.bytes); err != nil {
			_ = from.Close() // the reader ends, and what it has read is lost, as on a real link
		}
	}
	reading.Wait()
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite() // fails if it is closed already
	}
}

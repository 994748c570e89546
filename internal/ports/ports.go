// Package ports reserves TCP ports of 127.0.0.1 for processes that are about to be
// started, by tests and by what measures.
//
// That a port is free now says nothing of the moment at which a process listens on it:
// of two programs that look at the same time, both find it free. So the ports are
// divided into ranges, and the first of each range is never given away: who reserves a
// range listens there until it is closed. Programs that look for ports here keep out of
// each other's way so, also if they are different processes, and if what used the ports
// is stopped and started again; a killed program leaves nothing behind.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	// Most is how many ports a range has.
	Most = apart - 1

	first, end = 20000, 32000 // below the ports from which systems take the local ends of connections
	apart      = 32           // from the beginning of one range to that of the next
)

// Range is ports in a row. It is safe for concurrent use.
type Range struct {
	base int
	mark net.Listener // on the port before base
}

// Reserve returns a range of ports on which nobody listens, and which no other call of
// Reserve on this machine returns until it is closed. Programs that do not call it may
// take the ports all the same.
func Reserve() (*Range, error) { return reserve(first, end) }

func reserve(first, end int) (*Range, error) {
	ranges := (end - first) / apart
	from := rand.IntN(ranges) // so that calls at the same time seldom look at the same one
	for i := range ranges {
		at := first + (from+i)%ranges*apart
		mark, err := net.Listen("tcp", address(at))
		if err != nil {
			continue // somebody has it
		}
		if r := (&Range{base: at + 1, mark: mark}); r.free() {
			return r, nil
		}
		_ = mark.Close() // nobody has connected
	}
	return nil, fmt.Errorf("no %d ports in a row are free between %d and %d on 127.0.0.1", apart, first, end)
}

// Base is the first of the ports; Most are in the range.
func (r *Range) Base() int { return r.base }

// Address is the address of the port that is i after Base, such as 127.0.0.1:20065.
func (r *Range) Address(i int) string { return address(r.base + i) }

// Addresses are those of the first n ports.
func (r *Range) Addresses(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = r.Address(i)
	}
	return list
}

// Close lets others have the ports. What listens on them should have ended. A second
// Close does nothing, and so does that of a nil Range.
func (r *Range) Close() error {
	if r == nil {
		return nil
	}
	if err := r.mark.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// free reports whether nobody listens on the ports.
func (r *Range) free() bool {
	for _, address := range r.Addresses(Most) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return false
		}
		_ = l.Close() // nobody has connected
	}
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

package main

import (
	"net"

	"github.com/chubbylock/chubby/cell"
)

// placeListen joins the host of listen with the ports of this replica's member. The host is for ports that
// others must reach, so an http port on the loopback interface stays there.
func (s *settings) placeListen() {
	for _, m := range s.replica.Members {
		if s.listenHost == "" || m.ID != s.replica.ID {
			continue
		}
		on := func(address string) string {
			if _, port, err := net.SplitHostPort(address); err == nil {
				return net.JoinHostPort(s.listenHost, port)
			}
			return ""
		}
		s.replica.Listen = cell.Addresses{Client: on(m.Client), Raft: on(m.Raft)}
		if !onLoopback(m.HTTP) {
			s.replica.Listen.HTTP = on(m.HTTP)
		}
	}
}

// onLoopback reports whether an address is written as a loopback one. What a name resolves to here does not
// count: it may be the host's own (see cell.Config.Listen).
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

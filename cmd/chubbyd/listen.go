package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/chubbylock/chubby/cell"
)

// auto is the value of a setting that the replica chooses.
const auto = "auto"

// setListen reads where to listen: a host, with the member's ports, or CLIENT,RAFT[,HTTP].
func setListen(s *settings, text string) error {
	s.listenHost, s.replica.Listen = "", cell.Addresses{}
	addresses := strings.Split(text, ",")
	switch {
	case text == "":
		return errors.New("is empty; name a host, as in 0.0.0.0, or leave it to 'auto'")
	case text == auto:
		return nil
	case len(addresses) == 1:
		if _, _, err := net.SplitHostPort(text); err == nil {
			return fmt.Errorf("%q has a port, and a replica has two or three: want a host alone, as in 0.0.0.0, or CLIENT,RAFT[,HTTP], as in :7421,:7431,:7441", text)
		}
		s.listenHost = strings.Trim(text, "[]")
		return nil
	case len(addresses) > 3:
		return fmt.Errorf("%q has %d addresses: want CLIENT,RAFT[,HTTP], as in :7421,:7431,:7441", text, len(addresses))
	}
	for i, address := range addresses {
		_, port, err := net.SplitHostPort(address)
		if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%q is not [host]:port", address)
		}
		*[]*string{&s.replica.Listen.Client, &s.replica.Listen.Raft, &s.replica.Listen.HTTP}[i] = address
	}
	return nil
}

func setAdvertise(s *settings, text string) error {
	if s.replica.Advertise = ""; text == auto {
		return nil
	}
	if problem := addressProblem(text); problem != "" {
		return errors.New(problem)
	}
	s.replica.Advertise = text
	return nil
}

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

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell"
)

// resolver finds the addresses of a host; net.DefaultResolver is one.
type resolver interface {
	// LookupNetIP returns the addresses of a host; network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// resolveLimit is how long the names of all members may take to be resolved.
const resolveLimit = 2 * time.Second

// doubts lists what is allowed in a configuration and is most often a mistake.
func doubts(ctx context.Context, s settings, names resolver) []string {
	var list []string
	if n := len(s.replica.Members); n > 0 && n%2 == 0 {
		list = append(list, fmt.Sprintf("a cell of %d replicas survives the loss of %d, no more than one of %d does: use one, three or five", n, (n-1)/2, n-1))
	}
	return append(list, loopbackDoubts(ctx, s, names)...)
}

// loopbackDoubts tells of members whose names mean the loopback interface here,
// where those of others do not: nobody else reaches a replica by such a name.
// Names that cannot be resolved here may be known where the replicas run.
func loopbackDoubts(ctx context.Context, s settings, names resolver) []string {
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	var hosts []string
	for _, m := range s.replica.Members {
		for _, address := range []string{m.Client, m.Raft} {
			if host, _, err := net.SplitHostPort(address); err == nil && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	found := make([][]netip.Addr, len(hosts))
	var lookups sync.WaitGroup
	for i, host := range hosts {
		lookups.Go(func() { found[i], _ = names.LookupNetIP(ctx, "ip", host) })
	}
	lookups.Wait()
	elsewhere := slices.ContainsFunc(found, func(a []netip.Addr) bool { return len(a) > 0 && !loopback(a) })
	var list []string
	for i, host := range hosts {
		if elsewhere && loopback(found[i]) {
			list = append(list, loopbackDoubt(s, host, found[i][0]))
		}
	}
	return list
}

// loopback reports whether one of the addresses is of the loopback interface.
func loopback(addresses []netip.Addr) bool {
	return slices.ContainsFunc(addresses, netip.Addr.IsLoopback)
}

func loopbackDoubt(s settings, host string, address netip.Addr) string {
	var of []string
	own := false
	for _, m := range s.replica.Members {
		if slices.ContainsFunc([]string{m.Client, m.Raft}, func(a string) bool { return strings.HasPrefix(a, host+":") || strings.HasPrefix(a, "["+host+"]:") }) {
			of, own = append(of, m.ID), own || m.ID == s.replica.ID
		}
	}
	text := fmt.Sprintf("%s, the host of %s, is %v here, which only this machine reaches, and the others are not: ", host, strings.Join(of, " and "), address)
	if own && net.ParseIP(host) == nil && s.replica.Listen == (cell.Addresses{}) {
		return text + "this replica listens on every interface for it, so see that the name means another address on the other machines"
	}
	return text + "correct /etc/hosts or DNS, or the members"
}

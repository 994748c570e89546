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
	"github.com/chubbylock/chubby/internal/backupstore"
)

// resolver finds a host's addresses; net.DefaultResolver is one.
type resolver interface {
	// LookupNetIP returns a host's addresses; network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// resolveBound is how long resolving all members' names may take.
const resolveBound = 2 * time.Second

// warnings returns allowed settings that are mostly mistakes.
func warnings(ctx context.Context, s settings, names resolver) []string {
	var list []string
	if n := len(s.replica.Members); n > 0 && !s.replica.Join && !s.replica.Spare && n%2 == 0 {
		list = append(list, fmt.Sprintf("a cell of %d replicas survives the loss of %d, no more than one of %d does: use one, three or five", n, (n-1)/2, n-1))
	}
	list = append(list, contentsWarning(s, memoryLimit())...)
	if text := backupstore.Warning(s.replica.Backups.Place); text != "" {
		list = append(list, "backup-to: "+text)
	}
	return append(list, loopbackWarnings(ctx, s, names)...)
}

// loopbackWarnings returns members' hosts that are loopback on this machine while others' are not: other
// machines cannot reach a replica by such a name. A name that this machine cannot resolve may be known where
// the replicas run.
func loopbackWarnings(ctx context.Context, s settings, names resolver) []string {
	ctx, cancel := context.WithTimeout(ctx, resolveBound)
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
	elsewhere := slices.ContainsFunc(found, func(a []netip.Addr) bool { return len(a) > 0 && !isLoopback(a) })
	var list []string
	for i, host := range hosts {
		if elsewhere && isLoopback(found[i]) {
			list = append(list, loopbackWarning(s, host, found[i][0]))
		}
	}
	return list
}

func isLoopback(addresses []netip.Addr) bool {
	return slices.ContainsFunc(addresses, netip.Addr.IsLoopback)
}

func loopbackWarning(s settings, host string, address netip.Addr) string {
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

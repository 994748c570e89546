package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/backupstore"
)

// maxBallast is the ballast with enough memory. A small cell needs about 4 MB, and under load makes as much
// garbage several times a second.
const maxBallast = 32 << 20

// ballastShare limits the ballast to this part of the memory. It grows the heap twice: by itself, which uses no
// real memory, and by as much garbage.
const ballastShare = 16

// newBallast returns memory that is never touched: it uses no real memory, but counts as live for Go's garbage
// collector, which runs when the heap has doubled. Without it a replica with little state collects again and
// again; with it the collector waits for at least as much garbage as the ballast. A replica with much state
// collects as often as before.
//
// It returns nil if the operator has set GOGC. The ballast works as long as it is referenced.
func newBallast() []byte {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return make([]byte, ballastSize(memoryLimit()))
}

// ballastSize returns the ballast of a process with so much memory.
func ballastSize(memory int64) int64 { return min(maxBallast, memory/ballastShare) }

// memoryLimit returns how much memory this process may use, by GOMEMLIMIT, its control groups, or the machine;
// math.MaxInt64 if unknown.
func memoryLimit() int64 {
	return min(debug.SetMemoryLimit(-1), groupLimit("/proc/self/cgroup", "/sys/fs/cgroup"), machineMemory("/proc/meminfo"))
}

// groupLimit returns the smallest memory limit of a process's control groups. list is the file that names the
// group; groups is the directory of groups.
func groupLimit(list, groups string) int64 {
	limit := int64(math.MaxInt64)
	text, _ := os.ReadFile(list) // absent on other systems
	for line := range strings.Lines(string(text)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/") // version 2; others have no such line
		for ok {
			text, _ := os.ReadFile(filepath.Join(groups, group, "memory.max")) // absent for the topmost group
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil {
				limit = min(limit, n)
			}
			ok = group != "" && group != "."
			group = filepath.Dir(group)
		}
	}
	return limit
}

// machineMemory returns the machine's memory, from a file like /proc/meminfo.
func machineMemory(file string) int64 {
	text, _ := os.ReadFile(file) // absent on other systems
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "MemTotal:" {
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

// A replica may hold the cell twice, during a snapshot from the master or a restore. The remaining fifth is for
// itself and its clients.
const (
	contentsShare = 2
	ofMemory      = 5
)

// contentsBound returns how many MiB a cell may hold whose replicas have this memory in bytes; 0 if unknown.
func contentsBound(memory int64) int {
	if memory == math.MaxInt64 {
		return 0
	}
	return max(1, int(memory/ofMemory*contentsShare>>20))
}

// contentsWarning warns if the cell may hold more than the memory allows.
func contentsWarning(s settings, memory int64) []string {
	fits := contentsBound(memory)
	if fits == 0 || s.replica.MaxContentsMiB <= fits {
		return nil
	}
	return []string{fmt.Sprintf("max-contents-mib: %d are more than two fifths of the memory that a replica may use here, %d MiB: one that catches up with the master has what the cell holds twice; more than %d may end it",
		s.replica.MaxContentsMiB, memory>>20, fits)}
}

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

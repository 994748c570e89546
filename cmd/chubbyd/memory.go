package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
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

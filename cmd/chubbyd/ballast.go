package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// maxBallast is the ballast where there is enough memory. A small cell needs about 4 MB, and under
// load makes garbage of as much several times a second.
const maxBallast = 32 << 20

// ballastShare is the part of the memory that the ballast may have. The heap grows by it twice: by the
// ballast itself, which takes none of the machine's memory, and by garbage of its size.
const ballastShare = 16

// newBallast returns memory that is never touched, and so is none of the machine's, but counts as live
// to Go's garbage collector. The collector runs when the heap has doubled: so without it a replica whose
// state is small collects again and again, and with it the collector waits for at least as much garbage
// as the ballast is long. A replica with much state collects as often as ever.
//
// There is none if GOGC is set, and not empty: then the operator has decided. It is in use as long as it is referred to.
func newBallast() []byte {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return make([]byte, ballastSize(memoryLimit()))
}

// ballastSize returns the size of the ballast of a process that may use so much memory.
func ballastSize(memory int64) int64 { return min(maxBallast, memory/ballastShare) }

// memoryLimit returns how much memory this process may use: as GOMEMLIMIT says, the control groups that
// it runs in, or the machine; math.MaxInt64 if nothing says so.
func memoryLimit() int64 {
	return min(debug.SetMemoryLimit(-1), groupLimit("/proc/self/cgroup", "/sys/fs/cgroup"), machineMemory("/proc/meminfo"))
}

// groupLimit returns the least limit of the memory of the control groups that a process runs in. list is
// the file that names the group, and groups is where the groups are.
func groupLimit(list, groups string) int64 {
	limit := int64(math.MaxInt64)
	text, _ := os.ReadFile(list) // there is none on other systems
	for line := range strings.Lines(string(text)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/") // version 2; others have no such line
		for ok {
			text, _ := os.ReadFile(filepath.Join(groups, group, "memory.max")) // a machine's topmost group has none
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil {
				limit = min(limit, n)
			}
			ok = group != "" && group != "."
			group = filepath.Dir(group)
		}
	}
	return limit
}

// machineMemory returns the memory of the machine, as a file like /proc/meminfo says.
func machineMemory(file string) int64 {
	text, _ := os.ReadFile(file) // there is none on other systems
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "MemTotal:" {
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

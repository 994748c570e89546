package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// clockTick is the unit of processor times in /proc.
const clockTick = 10 * time.Millisecond

// process is what /proc says of a process.
type process struct {
	id, parent int
	used       time.Duration // processor time, of the kernel too
}

// readProcess reads /proc/PID/stat.
func readProcess(id int) (process, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "stat"))
	if err != nil {
		return process{}, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name, in parentheses, may have spaces
	if len(fields) < 13 {
		return process{}, fmt.Errorf("/proc/%d/stat has %d fields", id, len(fields))
	}
	var numbers [3]int64
	for i, field := range []int{1, 11, 12} { // ppid, utime, stime
		if numbers[i], err = strconv.ParseInt(string(fields[field]), 10, 64); err != nil {
			return process{}, err
		}
	}
	return process{id: id, parent: int(numbers[0]), used: time.Duration(numbers[1]+numbers[2]) * clockTick}, nil
}

// allProcesses lists the processes of this machine, none on a system without /proc.
func allProcesses() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var list []process
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, err := readProcess(id); err == nil { // else it has ended meanwhile
			list = append(list, p)
		}
	}
	return list
}

// treeOf lists processes and all below them.
func treeOf(roots []int) []process {
	all := allProcesses()
	within := slices.Clone(roots)
	var tree []process
	for i := 0; i < len(within); i++ { // it grows meanwhile
		for _, p := range all {
			if p.id == within[i] {
				tree = append(tree, p)
			}
			if p.parent == within[i] {
				within = append(within, p.id)
			}
		}
	}
	return tree
}

// processorTime returns what processes and all below them have used.
func processorTime(roots []int) time.Duration {
	var sum time.Duration
	for _, p := range treeOf(roots) {
		sum += p.used
	}
	return sum
}

// residentMemory returns the memory of processes and all below them, in bytes.
func residentMemory(roots []int) int64 {
	var sum int64
	for _, p := range treeOf(roots) {
		sum += memoryOf(p.id)
	}
	return sum
}

// memoryOf returns the resident memory of one process, in bytes, 0 if it has ended.
func memoryOf(id int) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "statm"))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64) // the kernel writes a number
	return pages * int64(os.Getpagesize())
}

// usage is what was used: processor time, and bytes that crossed the loopback interface.
type usage struct {
	servers, generator time.Duration
	sent               int64
}

func (u usage) since(before usage) usage {
	return usage{servers: u.servers - before.servers, generator: u.generator - before.generator, sent: u.sent - before.sent}
}

// meter returns a function that reads what a system and this program have used until now.
func meter(s system) func() usage {
	return func() usage {
		self, _ := readProcess(os.Getpid()) // zero on a system without /proc
		return usage{servers: processorTime(s.Processes()), generator: self.used, sent: loopbackBytes()}
	}
}

// loopbackBytes returns how many bytes were sent over the loopback interface since the machine
// started, 0 on a system without /proc.
func loopbackBytes() int64 {
	text, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) > 9 && string(fields[0]) == "lo:" {
			sent, _ := strconv.ParseInt(string(fields[9]), 10, 64) // the kernel writes a number
			return sent
		}
	}
	return 0
}

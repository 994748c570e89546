package main

import (
	"bytes"
	"fmt"
	"os"
)

// A replica's log has two files, the current and the previous one.
const (
	logFileBytes = 8 << 20  // of each
	logLineBytes = 16 << 10 // longer lines are split
)

// replicaLog takes all output of a replica: all of it into a file of limited size, and what the user should see
// now also to the console. Only one goroutine at a time may use it.
type replicaLog struct {
	id      string
	name    string
	file    *os.File
	written int64
	partial []byte // the beginning of a line
	console *console
	healthy func() bool // whether the cell is healthy, so that a warning is unexpected
}

func openReplicaLog(id, name string, out *console, healthy func() bool) (*replicaLog, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return &replicaLog{
		id:      id,
		name:    name,
		file:    file,
		written: info.Size(),
		console: out,
		healthy: healthy,
	}, nil
}

// Write never fails: a replica must not end for lack of room for its log.
func (l *replicaLog) Write(p []byte) (int, error) {
	l.partial = append(l.partial, p...)
	for {
		end := bytes.IndexByte(l.partial, '\n') + 1
		if end == 0 && len(l.partial) < logLineBytes {
			return len(p), nil
		}
		if end == 0 {
			end = len(l.partial)
		}
		l.writeLine(l.partial[:end])
		l.partial = l.partial[end:]
	}
}

func (l *replicaLog) writeLine(text []byte) {
	if l.written+int64(len(text)) > logFileBytes {
		l.rotate()
	}
	n, err := l.file.Write(text)
	l.written += int64(n)
	text = bytes.TrimRight(text, "\n")
	if err != nil {
		l.console.printf("%-3s | the log file cannot be written: %v", l.id, err)
	}
	if err != nil || isForConsole(text, l.healthy()) {
		l.console.printf("%-3s | %s", l.id, text)
	}
}

// rotate renames the file, over the previous one, and begins a new one. If it cannot, it empties the file, to
// keep the limit.
func (l *replicaLog) rotate() {
	if err := os.Rename(l.name, l.name+".1"); err == nil {
		if next, err := os.OpenFile(l.name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err == nil {
			l.file.Close()
			l.file, l.written = next, 0
			return
		}
	}
	if err := l.file.Truncate(0); err == nil {
		l.written = 0
	}
}

// isForConsole reports whether a replica's line is for the console: one that is not of its log (a last message,
// the trace of a panic), and, in a healthy cell, warnings and errors.
func isForConsole(line []byte, healthy bool) bool {
	logged := bytes.HasPrefix(line, []byte("time="))
	serious := bytes.Contains(line, []byte(" level=WARN")) || bytes.Contains(line, []byte(" level=ERROR"))
	return len(line) > 0 && (!logged || healthy && serious)
}

// Close writes the rest and closes the file.
func (l *replicaLog) Close() error {
	if len(l.partial) > 0 {
		l.writeLine(append(l.partial, '\n'))
		l.partial = nil
	}
	return l.file.Close()
}

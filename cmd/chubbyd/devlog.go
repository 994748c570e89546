package main

import (
	"bytes"
	"fmt"
	"os"
)

// A replica's log is kept in two files, the current and the one before.
const (
	logFileBytes = 8 << 20  // of each
	logLineBytes = 16 << 10 // longer lines are split
)

// replicaLog takes everything a replica writes: all of it goes to a file of
// bounded size, and what somebody should see now also to the console. It is
// for one goroutine at a time.
type replicaLog struct {
	id      string
	name    string
	file    *os.File
	written int64
	partial []byte // the beginning of a line
	console *console
	settled func() bool // whether warnings are news
}

func openReplicaLog(id, name string, out *console, settled func() bool) (*replicaLog, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return &replicaLog{id: id, name: name, file: file, written: info.Size(), console: out, settled: settled}, nil
}

// Write never fails: a full disk must not end the replica by way of its log.
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
		l.line(l.partial[:end])
		l.partial = l.partial[end:]
	}
}

func (l *replicaLog) line(text []byte) {
	if l.written+int64(len(text)) > logFileBytes {
		l.rotate()
	}
	n, err := l.file.Write(text)
	l.written += int64(n)
	text = bytes.TrimRight(text, "\n")
	if err != nil {
		l.console.printf("%-3s | the log file cannot be written: %v", l.id, err)
	}
	if err != nil || worthSeeing(text, l.settled()) {
		l.console.printf("%-3s | %s", l.id, text)
	}
}

// rotate moves the file aside, over the one moved before, and begins a new one;
// if it cannot, it empties the file: the log never grows past its bound.
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

// worthSeeing reports whether a line of a replica is for the console: one that
// is none of its log lines at all (a last message, the trace of a panic), and in
// a settled cell warnings and errors.
func worthSeeing(line []byte, settled bool) bool {
	logged := bytes.HasPrefix(line, []byte("time="))
	serious := bytes.Contains(line, []byte(" level=WARN")) || bytes.Contains(line, []byte(" level=ERROR"))
	return len(line) > 0 && (!logged || settled && serious)
}

// Close writes what is left and closes the file.
func (l *replicaLog) Close() error {
	if len(l.partial) > 0 {
		l.line(append(l.partial, '\n'))
		l.partial = nil
	}
	return l.file.Close()
}

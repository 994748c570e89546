package main

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// logKept is how many bytes of the end of its log a replica keeps for a report (chubbyctl cell debug).
const logKept = 256 << 10

// tail keeps the end of what is written to it. Each write is a line.
type tail struct {
	mu    sync.Mutex // guards what follows
	lines [][]byte
	bytes int
}

// Write keeps a line, and drops the oldest ones.
func (k *tail) Write(line []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines, k.bytes = append(k.lines, bytes.Clone(line)), k.bytes+len(line)
	for k.bytes > logKept {
		k.bytes -= len(k.lines[0])
		k.lines[0] = nil
		k.lines = k.lines[1:]
	}
	return len(line), nil
}

func (k *tail) text() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Join(k.lines, nil)
}

// debug returns what chubbyd adds to a replica's report.
func (d *draft) debug(said *tail) map[string]func() []byte {
	shown := d.shown()
	return map[string]func() []byte{
		"log":    func() []byte { return []byte(withoutSecrets(string(said.text()))) },
		"config": func() []byte { return shown },
	}
}

// shown returns the effective configuration for a report. Secrets are in files, which are only named, and in
// URLs, whose users and queries are omitted.
func (d *draft) shown() []byte {
	open := *d
	open.texts = make(map[string]string, len(d.texts))
	for key, text := range d.texts {
		open.texts[key] = withoutSecrets(text)
	}
	var out bytes.Buffer
	if err := open.show(&out); err != nil {
		return nil // a buffer takes everything
	}
	return out.Bytes()
}

// afterScheme is the rest of a URL after its scheme, in text, quoted or in JSON; a space or a quote ends it.
var afterScheme = regexp.MustCompile(`://[^\s"]*`)

// withoutSecrets omits possible secrets from all URLs in a text: a log also has those of rejected
// configurations, and package net/http writes one with *** for the password.
func withoutSecrets(text string) string {
	return afterScheme.ReplaceAllStringFunc(text, func(found string) string {
		whole := strings.TrimRight(found, `\`) // a quote's
		shown, quote := strings.TrimPrefix(whole, "://"), found[len(whole):]
		if at := strings.IndexAny(shown, "?#"); at >= 0 {
			hidden := shown[at:]
			if shown = shown[:at] + "?left-out"; strings.Contains(hidden, "@") { // a password may come before
				shown = "left-out"
			}
		}
		if at := strings.LastIndex(shown, "@"); at >= 0 {
			shown = "left-out" + shown[at:]
		}
		return "://" + shown + quote
	})
}

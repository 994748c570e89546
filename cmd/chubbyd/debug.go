package main

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// logKept is how many bytes of the last lines of its log a replica keeps for a report (chubbyctl cell debug).
const logKept = 256 << 10

// tail keeps the last of what is written to it. Each write is a line.
type tail struct {
	mu    sync.Mutex // guards what follows
	lines [][]byte
	bytes int
}

// Write keeps a line, and forgets the first ones.
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

// text returns what is kept.
func (k *tail) text() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Join(k.lines, nil)
}

// debug returns what chubbyd adds to what a replica says of itself.
func (d *draft) debug(said *tail) map[string]func() []byte {
	shown := d.shown()
	return map[string]func() []byte{
		"log":    func() []byte { return []byte(withoutSecrets(string(said.text()))) },
		"config": func() []byte { return shown },
	}
}

// shown returns the configuration that counts, for a report: secrets are in files, which are named alone, and in URLs, of which users and
// queries are left out.
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

// afterScheme is what a URL has after its scheme, as text, quoted or in JSON: that ends with a space or a quote.
var afterScheme = regexp.MustCompile(`://[^\s"]*`)

// withoutSecrets leaves out what may be one in the URLs of a text, whichever these are: a log has those of configurations that were
// refused, too, and package net/http writes one with *** in place of the password.
func withoutSecrets(text string) string {
	return afterScheme.ReplaceAllStringFunc(text, func(found string) string {
		whole := strings.TrimRight(found, `\`) // that of a quote
		shown, quote := strings.TrimPrefix(whole, "://"), found[len(whole):]
		if at := strings.IndexAny(shown, "?#"); at >= 0 {
			hidden := shown[at:]
			if shown = shown[:at] + "?left-out"; strings.Contains(hidden, "@") { // a password may be what is before
				shown = "left-out"
			}
		}
		if at := strings.LastIndex(shown, "@"); at >= 0 {
			shown = "left-out" + shown[at:]
		}
		return "://" + shown + quote
	})
}

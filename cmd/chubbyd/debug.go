package main

import (
	"bytes"
	"net/url"
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
	shown, hider := d.shown(), d.hider()
	return map[string]func() []byte{
		"log":    func() []byte { return []byte(hider.Replace(string(said.text()))) },
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

// hider returns what takes out of a log what shown leaves out: errors name the URL that they are about, in JSON too.
func (d *draft) hider() *strings.Replacer {
	var pairs []string
	for _, text := range d.texts {
		u, err := url.Parse(text)
		if err != nil || !strings.Contains(text, "://") {
			continue
		}
		for _, secret := range []string{u.User.String(), u.RawQuery} {
			if secret != "" {
				pairs = append(pairs, secret, "left-out", strings.ReplaceAll(secret, "&", `\u0026`), "left-out")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// withoutSecrets leaves out what of a URL may be one.
func withoutSecrets(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "left out"
	}
	if u.User != nil {
		u.User = url.User("left-out")
	}
	if u.RawQuery != "" {
		u.RawQuery = "left-out"
	}
	return u.String()
}

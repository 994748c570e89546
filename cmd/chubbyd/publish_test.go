package main

import (
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cmd/chubbyd/internal/names"
)

// readSettings reads a configuration of one replica with some more lines.
func readSettings(text string) (settings, string) {
	d := newDraft("file")
	d.readYAML("file", []byte("cell: main\nid: r1\ninsecure: true\ndata: d\nmembers: [{id: r1, client: 'h1:1', raft: 'h1:2'}]\n"+text))
	var problems []string
	for _, p := range d.validate() {
		problems = append(problems, p.String())
	}
	return d.settings, strings.Join(problems, "\n")
}

func TestPublishing(t *testing.T) {
	s, problems := readSettings("dns-server: ns1\ndns-domain: example.org\ndns-key: /k\ndns-ttl: 5m\n")
	want := names.DNS{Server: "ns1:53", Domain: "example.org", KeyFile: "/k", TTL: 5 * time.Minute}
	if got := s.publishing.dns; problems != "" || got.Server != want.Server || got.Domain != want.Domain || got.KeyFile != want.KeyFile || got.TTL != want.TTL {
		t.Errorf("%+v, %s; want %+v", got, problems, want)
	}
	if s.publishing.install(&s.replica); s.replica.Publish == nil {
		t.Error("the replica publishes nothing in DNS")
	}
	s, problems = readSettings("dns-hook: /usr/local/bin/names\n")
	if s.publishing.install(&s.replica); problems != "" || s.replica.Publish == nil {
		t.Error("the replica runs no hook", problems)
	}
	if s, _ = readSettings(""); s.replica.Publish != nil || s.publishing.dns.TTL != time.Minute {
		t.Error("the replica publishes, and was not told to")
	}
	for text, want := range map[string]string{
		"dns-server: ns1\n":                            "file:6:13: dns-domain is missing",
		"dns-server: ''\ndns-domain: o\n":              `file:6:13: dns-server: ":53" names no host`,
		"dns-server: ns1:0\ndns-domain: o\n":           "has no port from 1 to 65535",
		"dns-domain: example.org\n":                    "file:6:13: dns-server is missing",
		"dns-key: /k\n":                                "file:6:10: dns-server is missing",
		"dns-hook: names\n":                            `"names" is not an absolute path`,
		"dns-hook: ''\n":                               "is not an absolute path",
		"dns-ttl: 1ms\n":                               "outside 1s to 24h",
		"dns-hook: /h\ndns-server: n\ndns-domain: o\n": "dns-hook: dns-server is set, too",
	} {
		if _, problems := readSettings(text); !strings.Contains(problems, want) {
			t.Errorf("%q: %s; want %s", text, problems, want)
		}
	}
}

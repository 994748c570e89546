package main

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cmd/chubbyd/internal/names"
)

func TestListenAndAdvertise(t *testing.T) {
	host := cell.Addresses{Client: "0.0.0.0:7421", Raft: "0.0.0.0:7431"}
	withHTTP := host
	withHTTP.HTTP = "0.0.0.0:7441"
	for _, c := range []struct {
		listen, advertise, http string // http is that of the member
		want                    cell.Addresses
		problem                 string
	}{
		{listen: "auto", advertise: "auto"},
		{listen: "0.0.0.0", advertise: "lb.example.org:443", want: host},
		{listen: "[::1]", want: cell.Addresses{Client: "[::1]:7421", Raft: "[::1]:7431"}},
		{listen: ":1,127.0.0.1:2,:3", want: cell.Addresses{Client: ":1", Raft: "127.0.0.1:2", HTTP: ":3"}},
		{listen: ":1,:2", want: cell.Addresses{Client: ":1", Raft: ":2"}},
		{listen: "0.0.0.0:7421", problem: "has a port"},
		{listen: "h1,h2", problem: "not [host]:port"},
		{listen: ":1,:2,:3,:4", problem: "4 addresses"},
		{listen: "", problem: "is empty"},
		{listen: "auto", advertise: "0.0.0.0:7421", problem: "others must be able to reach"},
		// An http port that is written for the loopback interface stays at the address of its member.
		{listen: "0.0.0.0", http: ",127.0.0.1:7441", want: host},
		{listen: "0.0.0.0", http: ",127.0.1.1:7441", want: host},
		{listen: "0.0.0.0", http: ",[::1]:7441", want: host},
		{listen: "0.0.0.0", http: ",localhost:7441", want: host},
		{listen: "0.0.0.0", http: ",h1:7441", want: withHTTP},
		{listen: "0.0.0.0", http: ",10.0.0.5:7441", want: withHTTP},
	} {
		d := draftWith(map[string]string{
			"listen": c.listen, "advertise": cmp.Or(c.advertise, auto), "cell": "c", "data": "d", "insecure": "true",
			"id": "r1", "members": "r1=h1:7421,h1:7431" + c.http,
		})
		err := errorOf(d.validate())
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		case d.replica.Listen != c.want:
			t.Errorf("%+v: listens on %+v", c, d.replica.Listen)
		case c.advertise != "" && c.advertise != auto && d.replica.Advertise != c.advertise:
			t.Errorf("%+v: advertises %q", c, d.replica.Advertise)
		}
	}
}

// hostsFile resolves the names that are in it.
type hostsFile map[string]string

func (h hostsFile) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if text, ok := h[host]; ok {
		return []netip.Addr{netip.MustParseAddr(text)}, nil
	}
	return nil, errors.New("no such host")
}

func TestWarnings(t *testing.T) {
	members := func(hosts ...string) []cell.Member {
		var list []cell.Member
		for i, h := range hosts {
			list = append(list, cell.Member{ID: "r" + string(rune('1'+i)), Client: h + ":7421", Raft: h + ":7431"})
		}
		return list
	}
	debian := hostsFile{"h1": "127.0.1.1", "h2": "10.0.0.2", "h3": "10.0.0.3", "localhost": "127.0.0.1"}
	for _, c := range []struct {
		hosts  []string
		id     string
		listen cell.Addresses
		want   []string // a part of each
	}{
		{hosts: []string{"h2", "h3", "10.0.0.4"}, id: "r1"},
		{hosts: []string{"h2", "unknown", "h3"}, id: "r1"},
		{hosts: []string{"localhost", "127.0.0.1", "127.0.0.2"}, id: "r1"},
		{hosts: []string{"h1", "h2", "h3"}, id: "r1", want: []string{"h1, the host of r1, is 127.0.1.1 here, which only this machine reaches, and the others are not: this replica listens on every"}},
		{hosts: []string{"h1", "h2", "h3"}, id: "r2", want: []string{"correct /etc/hosts"}},
		{hosts: []string{"h1", "h2", "h3"}, id: "r1", listen: cell.Addresses{Client: "h1:7421"}, want: []string{"correct /etc/hosts"}},
		{hosts: []string{"h2", "127.0.0.1", "h3"}, id: "r2", want: []string{"correct /etc/hosts"}},
		{hosts: []string{"h2", "h3"}, id: "r1", want: []string{"a cell of 2 replicas survives the loss of 0, no more than one of 1"}},
		{hosts: []string{"h2", "h3", "h4", "h1"}, id: "r1", want: []string{"a cell of 4 replicas survives the loss of 1", "h1, the host of r4"}},
	} {
		var s settings
		s.replica = cell.Config{ID: c.id, Members: members(c.hosts...), Listen: c.listen}
		got := warnings(t.Context(), s, debian)
		if len(got) != len(c.want) {
			t.Errorf("%v: %q, want %q", c.hosts, got, c.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%v: %q, want %q", c.hosts, got[i], c.want[i])
			}
		}
	}
}

// Whole backups go over the network in the clear if a bucket is named so: check warns of it, and so does the log of a replica.
func TestWarningOfBackupsInTheClear(t *testing.T) {
	var s settings
	noErr(t, s.setBackupTo("s3://b?endpoint=http://minio:9000"))
	if got := warnings(t.Context(), s, hostsFile{}); len(got) != 1 || !strings.HasPrefix(got[0], "backup-to: backups go to minio:9000") {
		t.Errorf("%q", got)
	}
}

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

package names

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/internal/ports"
	"github.com/miekg/dns"
)

// nameServer is BIND's named with the zone example.org, which the key in keyFile may change.
type nameServer struct {
	t       *testing.T
	dir     string
	address string
	keyFile string
}

const zoneFile = `$TTL 300
@ IN SOA ns1.example.org. admin.example.org. 1 3600 600 86400 60
@ IN NS ns1.example.org.
ns1 IN A 127.0.0.1
www IN A 192.0.2.80
`

func startNamed(t *testing.T) *nameServer {
	t.Helper()
	named, err := exec.LookPath("named")
	keygen, err2 := exec.LookPath("tsig-keygen")
	if errors.Join(err, err2) != nil {
		t.Fatal("named is not installed: apt-get install bind9")
	}
	s := &nameServer{t: t, dir: t.TempDir(), address: freeAddress(t)}
	s.keyFile = s.newKey(keygen, "chubby", "update.key")
	_, port, _ := net.SplitHostPort(s.address)
	s.write("example.org.zone", zoneFile)
	s.write("named.conf", fmt.Sprintf(`include %q;
options {
	directory %q; pid-file none; session-keyfile none; recursion no; dnssec-validation no; empty-zones-enable no;
	listen-on port %s { 127.0.0.1; }; listen-on-v6 { none; };
};
controls { };
zone "example.org" { type primary; file "example.org.zone"; update-policy { grant chubby subdomain cells.example.org. ANY; }; allow-transfer { key chubby; }; };
`, s.keyFile, s.dir, port))
	cmd := exec.Command(named, "-g", "-n", "1", "-c", filepath.Join(s.dir, "named.conf"))
	log, err := cmd.StderrPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var said strings.Builder
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if strings.HasSuffix(lines.Text(), " running") {
			go func() { _, _ = io.Copy(io.Discard, log) }() // until Wait closes it
			return s
		}
	}
	t.Fatalf("named does not start: %s", &said)
	return nil
}

// freeAddress returns an address where nobody listens until the test ends, or it does.
func freeAddress(t *testing.T) string {
	t.Helper()
	r, err := ports.Reserve()
	noErr(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r.Address(0)
}

func (s *nameServer) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *nameServer) newKey(keygen, name, file string) string {
	s.t.Helper()
	text, err := exec.Command(keygen, name).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.write(file, string(text))
}

// publisher is what keeps the records of that zone.
func (s *nameServer) publisher() DNS {
	return DNS{Server: s.address, Domain: "cells.example.org", KeyFile: s.keyFile, TTL: time.Minute, Now: time.Now}
}

// records returns all records of the zone, but for those of its own, and its serial number.
func (s *nameServer) records() (list []string, serial uint32) {
	s.t.Helper()
	k, err := readKey(s.keyFile)
	if err != nil {
		s.t.Fatal(err)
	}
	m := new(dns.Msg).SetAxfr("example.org.")
	m.SetTsig(k.name, k.algorithm, signedFor, time.Now().Unix())
	tr := &dns.Transfer{TsigSecret: map[string]string{k.name: k.secret}}
	answers, err := tr.In(m, s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	for a := range answers {
		if a.Error != nil {
			s.t.Fatal(a.Error)
		}
		for _, rr := range a.RR {
			switch rr := rr.(type) {
			case *dns.SOA:
				serial = rr.Serial
			case *dns.NS:
			default:
				list = append(list, strings.Join(strings.Fields(rr.String()), " "))
			}
		}
	}
	slices.Sort(list)
	return list, serial
}

func (s *nameServer) publish(p cell.Publication) {
	s.t.Helper()
	if err := s.publisher().Publish(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

func (s *nameServer) want(want ...string) (serial uint32) {
	s.t.Helper()
	got, serial := s.records()
	want = append(want, "ns1.example.org. 300 IN A 127.0.0.1", "www.example.org. 300 IN A 192.0.2.80")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("the zone has\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	return serial
}

// The records of a cell follow its replicas, nothing else in the zone is changed, and nothing at all without need; clients
// find the replicas.
func TestDNS(t *testing.T) {
	s := startNamed(t)
	three := cell.Publication{Cell: "main", Replicas: []cell.Member{
		{ID: "r1", Client: "192.0.2.1:7421"}, {ID: "r2", Client: "[2001:db8::2]:7422"}, {ID: "r3", Client: "host3.example.net:7423"},
	}}
	s.publish(three)
	const service = "_chubby._tcp.main.cells.example.org. 60 IN SRV 0 1 "
	serial := s.want(service+"7421 r1.main.cells.example.org.", service+"7422 r2.main.cells.example.org.", service+"7423 host3.example.net.",
		"r1.main.cells.example.org. 60 IN A 192.0.2.1", "r2.main.cells.example.org. 60 IN AAAA 2001:db8::2")
	s.publish(three)
	unsigned := s.publisher()
	unsigned.KeyFile = ""
	if err := unsigned.Publish(t.Context(), three); err != nil {
		t.Error("what is there already is published, which needs no right:", err)
	}
	if _, now := s.records(); now != serial {
		t.Errorf("the serial number is %d, before %d", now, serial)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.address)
	}}
	_, found, err := resolver.LookupSRV(t.Context(), "chubby", "tcp", "main.cells.example.org")
	if err != nil || len(found) != 3 {
		t.Errorf("clients find %v, %v", found, err)
	}

	now := cell.Publication{Cell: "main", Left: []string{"r1", "r3"}, Replicas: []cell.Member{
		{ID: "r2", Client: "192.0.2.22:7422"}, {ID: "r4", Client: "192.0.2.4:7424"},
	}}
	replaced := []string{
		service + "7422 r2.main.cells.example.org.", service + "7424 r4.main.cells.example.org.",
		"r2.main.cells.example.org. 60 IN A 192.0.2.22", "r4.main.cells.example.org. 60 IN A 192.0.2.4",
	}
	s.publish(now)
	s.want(replaced...)
	s.publish(three) // by a master of before
	s.publish(now)
	s.want(replaced...)

	other := cell.Publication{Cell: "other", Replicas: []cell.Member{{ID: "r2", Client: "192.0.2.99:1"}}}
	s.publish(other)
	s.publish(now)
	s.want(append(replaced, "_chubby._tcp.other.cells.example.org. 60 IN SRV 0 1 1 r2.other.cells.example.org.", "r2.other.cells.example.org. 60 IN A 192.0.2.99")...)
}

// So many replicas have left that their names do not fit into one message: all of them are taken away.
func TestDNSOfManyThatLeft(t *testing.T) {
	s := startNamed(t)
	first, last := cell.Member{ID: "chubby-main-0000", Client: "192.0.2.1:1"}, cell.Member{ID: "chubby-main-0999", Client: "192.0.2.2:1"}
	s.publish(cell.Publication{Cell: "main", Replicas: []cell.Member{first}})
	now := cell.Publication{Cell: "main", Replicas: []cell.Member{last}}
	for i := range 999 {
		now.Left = append(now.Left, fmt.Sprintf("chubby-main-%04d", i))
	}
	s.publish(now)
	s.want("_chubby._tcp.main.cells.example.org. 60 IN SRV 0 1 1 chubby-main-0999.main.cells.example.org.", "chubby-main-0999.main.cells.example.org. 60 IN A 192.0.2.2")
}

// An error says how to correct the fault, and nothing is changed.
func TestDNSRefused(t *testing.T) {
	s := startNamed(t)
	before := s.want()
	keygen, err := exec.LookPath("tsig-keygen")
	noErr(t, err)
	one := []cell.Member{{ID: "r1", Client: "192.0.2.1:7421"}}
	for what, c := range map[string]struct {
		edit     func(*DNS)
		replicas []cell.Member
		want     string
	}{
		"no key":              {func(d *DNS) { d.KeyFile = "" }, one, "says REFUSED: does it have the zone, and may anybody without a key change it?"},
		"a key of that name":  {func(d *DNS) { d.KeyFile = s.newKey(keygen, "chubby", "other.key") }, one, "does not accept the key chubby.: BADSIG"},
		"an unknown key":      {func(d *DNS) { d.KeyFile = s.newKey(keygen, "stranger", "strange.key") }, one, "does not accept the key stranger.: BADKEY"},
		"no key in the file":  {func(d *DNS) { d.KeyFile = s.write("empty.key", "") }, one, "has no key, as 'tsig-keygen' writes one"},
		"no file":             {func(d *DNS) { d.KeyFile = filepath.Join(s.dir, "none") }, one, "no such file"},
		"a clock that is off": {func(d *DNS) { d.Now = func() time.Time { return time.Now().Add(-time.Hour) } }, one, "does not accept the key chubby.: BADTIME"},
		"another cell":        {func(d *DNS) { d.Domain = "example.org" }, one, "may the key chubby. change it?"},
		"another zone":        {func(d *DNS) { d.Domain = "example.com" }, one, "REFUSED: does it have the zone"},
		"nobody there":        {func(d *DNS) { d.Server = freeAddress(t) }, one, "connect to the name server"},
		"no port":             {func(*DNS) {}, []cell.Member{{ID: "r1", Client: "192.0.2.1"}}, "the client address of replica r1"},
		"a label too long":    {func(*DNS) {}, []cell.Member{{ID: strings.Repeat("r", 64), Client: "192.0.2.1:1"}}, "cannot be a name in DNS"},
	} {
		d := s.publisher()
		c.edit(&d)
		err := d.Publish(t.Context(), cell.Publication{Cell: "main", Replicas: c.replicas})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", what, err, c.want)
		}
	}
	if after := s.want(); after != before {
		t.Errorf("the serial number is %d, before %d", after, before)
	}
}

// A name server that takes everything and answers nothing holds nobody up for longer than the context.
func TestDNSServerIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(200*time.Millisecond, cancel)
	begun := time.Now()
	d := DNS{Server: l.Addr().String(), Domain: "example.org", TTL: time.Minute, Now: time.Now}
	err = d.Publish(ctx, cell.Publication{Cell: "main", Replicas: []cell.Member{{ID: "r1", Client: "192.0.2.1:1"}}})
	if took := time.Since(begun); err == nil || took >= maxExchange {
		t.Errorf("%v after %v", err, took)
	}
}

package names

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/miekg/dns"
)

// The address of a replica that has left goes, also if the service was published without it before it was known to have left; and nobody else's
// address stays beside that of a replica.
func TestDNSOfReplicaThatLeaves(t *testing.T) {
	s := startNamed(t)
	r1, r2 := cell.Member{ID: "r1", Client: "192.0.2.1:1"}, cell.Member{ID: "r2", Client: "192.0.2.2:2"}
	const service = "_chubby._tcp.main.cells.example.org. 60 IN SRV 0 1 "
	want := []string{service + "1 r1.main.cells.example.org.", "r1.main.cells.example.org. 60 IN A 192.0.2.1"}
	s.publish(cell.Publication{Cell: "main", Replicas: []cell.Member{r1, r2}})
	s.publish(cell.Publication{Cell: "main", Replicas: []cell.Member{r1}}) // r2 is out of Raft's configuration, and the roster does not say so yet
	now := cell.Publication{Cell: "main", Replicas: []cell.Member{r1}, Left: []string{"r2"}}
	s.publish(now)
	s.want(want...)

	a, err := s.publisher().ask(t.Context())
	noErr(t, err)
	defer a.conn.Close()
	other := new(dns.Msg).SetUpdate("example.org.")
	other.Insert([]dns.RR{&dns.AAAA{Hdr: dns.RR_Header{Name: "r1.main.cells.example.org.", Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 60}, AAAA: net.ParseIP("2001:db8::66")}})
	if _, err := a.say(t.Context(), other, "update"); err != nil {
		t.Fatal(err)
	}
	s.publish(now)
	s.want(want...)
}

// IDs that cannot be names in DNS keep nothing from being published: their replicas had names of their own.
func TestDNSOfIDsThatAreNoNames(t *testing.T) {
	s := startNamed(t)
	s.publish(cell.Publication{
		Cell: "main", Left: []string{"r..0", strings.Repeat("r", 64)},
		Replicas: []cell.Member{{ID: "r..1", Client: "host1.example.net:1"}},
	})
	s.want("_chubby._tcp.main.cells.example.org. 60 IN SRV 0 1 1 host1.example.net.")
}

// An answer that is not signed, although the question was, may be anybody's on the way: it proves nothing.
func TestDNSAnswersAreSigned(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noErr(t, err)
	all := func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }
	liar := &dns.Server{Listener: l, MsgAcceptFunc: all, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetReply(q)
		if q.Opcode == dns.OpcodeQuery && q.Question[0].Qtype == dns.TypeSOA {
			answer.Answer = []dns.RR{&dns.SOA{Hdr: dns.RR_Header{Name: "example.org.", Rrtype: dns.TypeSOA, Class: dns.ClassINET}, Ns: ".", Mbox: "."}}
		}
		_ = w.WriteMsg(answer)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = liar.ActivateAndServe() }()
	defer func() { _ = liar.Shutdown(); <-served }()
	d := DNS{Server: l.Addr().String(), Domain: "cells.example.org", TTL: time.Minute, Now: time.Now}
	one := cell.Publication{Cell: "main", Replicas: []cell.Member{{ID: "r1", Client: "192.0.2.1:1"}}}
	if err := d.Publish(t.Context(), one); err != nil {
		t.Fatal("without a key nothing is signed:", err)
	}
	s := &nameServer{t: t, dir: t.TempDir()}
	d.KeyFile = s.write("key", `key "chubby" { algorithm hmac-sha256; secret "c2VjcmV0"; };`)
	if err := d.Publish(t.Context(), one); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("it is taken for published: %v", err)
	}
}

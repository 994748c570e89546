package names

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/chubbylock/chubby/cell"
	"github.com/miekg/dns"
)

// Limits of the conversation with a name server.
const (
	maxExchange = 5 * time.Second // one question
	maxLooked   = 50              // replicas that have left whose names are looked up; updates remove the names of all
	maxUpdate   = 32 << 10        // bytes of an update, before the records are added; a message has at most 64 KiB
	signedFor   = 300             // seconds that clocks may differ by (RFC 8945, 10)
)

// DNS keeps the records of a cell by dynamic updates, over TCP:
//
//	_chubby._tcp.CELL.DOMAIN  SRV     one for each replica
//	ID.CELL.DOMAIN            A, AAAA of a replica whose client address is an IP address
//
// Nothing else in the zone is changed. Clients look the former up if CHUBBY_DOMAIN is DOMAIN.
type DNS struct {
	Server  string        // host:port of the zone's primary server
	Domain  string        // the zone, or a name in it
	KeyFile string        // of a key for TSIG, read each time; "": updates are not signed
	TTL     time.Duration // of the records
	Now     func() time.Time
}

// Publish makes the records those of the replicas. It changes nothing if they are already.
func (d DNS) Publish(ctx context.Context, p cell.Publication) error {
	a, err := d.ask(ctx)
	if err != nil {
		return err
	}
	defer a.conn.Close()
	defer context.AfterFunc(ctx, func() { _ = a.conn.Close() })()
	service := d.service(p.Cell)
	want, err := d.records(p)
	if err != nil {
		return err
	}
	zone, err := a.zoneOf(ctx, service)
	if err != nil {
		return err
	}
	//mutant: if same, err := a.has(ctx, d.lookups(p), want); err != nil || same && false { //by TestDNS of ./cmd/chubbyd/internal/names
	if same, err := a.has(ctx, d.lookups(p), want); err != nil || same {
		return err
	}
	//mutant: updates := removals(zone, d.hosts(p.Left[:0], p.Cell)) //by TestDNS of ./cmd/chubbyd/internal/names
	updates := removals(zone, d.hosts(p.Left, p.Cell))
	last := updates[len(updates)-1]
	last.RemoveRRset([]dns.RR{&dns.SRV{Hdr: dns.RR_Header{Name: service, Rrtype: dns.TypeSRV}}})
	for _, name := range d.hosts(idsOf(p.Replicas), p.Cell) {
		last.RemoveRRset(addressesOf(name))
	}
	last.Insert(want)
	for _, update := range updates {
		if _, err := a.say(ctx, update, "update "+service); err != nil {
			return err
		}
	}
	return nil
}

// removals returns the updates that remove the addresses of names: at least one, which has room for more.
func removals(zone string, names []string) []*dns.Msg {
	list := []*dns.Msg{new(dns.Msg).SetUpdate(zone)}
	for _, name := range names {
		now := list[len(list)-1]
		if now.Len() > maxUpdate {
			now = new(dns.Msg).SetUpdate(zone)
			list = append(list, now)
		}
		now.RemoveRRset(addressesOf(name))
	}
	return list
}

// addressesOf stands for all addresses of a name.
func addressesOf(name string) []dns.RR {
	return []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA}}, &dns.AAAA{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA}}}
}

func (d DNS) service(ofCell string) string {
	return dns.Fqdn("_chubby._tcp." + ofCell + "." + d.Domain)
}

// host returns the name of a replica without one of its own.
func (d DNS) host(id, ofCell string) string { return dns.Fqdn(id + "." + ofCell + "." + d.Domain) }

// hosts returns the possible names of replicas with these IDs. An ID that cannot be a name never was one.
func (d DNS) hosts(ids []string, ofCell string) (names []string) {
	for _, id := range ids {
		if name := d.host(id, ofCell); isName(name) {
			names = append(names, name)
		}
	}
	return names
}

func idsOf(members []cell.Member) (ids []string) {
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

func isName(text string) bool {
	_, ok := dns.IsDomainName(text)
	return ok
}

// lookups returns the questions that show whether anything has to change, also for names that no replica has now.
func (d DNS) lookups(p cell.Publication) []dns.Question {
	left := p.Left[max(0, len(p.Left)-maxLooked):]
	list := []dns.Question{{Name: d.service(p.Cell), Qtype: dns.TypeSRV}}
	for _, name := range d.hosts(append(idsOf(p.Replicas), left...), p.Cell) {
		list = append(list, dns.Question{Name: name, Qtype: dns.TypeA}, dns.Question{Name: name, Qtype: dns.TypeAAAA})
	}
	return list
}

// records returns all records of a publication, the SRV records first.
func (d DNS) records(p cell.Publication) ([]dns.RR, error) {
	header := func(name string, kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: uint32(d.TTL / time.Second)}
	}
	var services, addresses []dns.RR
	for _, m := range p.Replicas {
		host, portText, err := net.SplitHostPort(m.Client)
		port, err2 := strconv.ParseUint(portText, 10, 16)
		if err := cmp.Or(err, err2); err != nil {
			return nil, fmt.Errorf("the client address of replica %s: %w", m.ID, err)
		}
		target := dns.Fqdn(host)
		if ip := net.ParseIP(host); ip != nil {
			target = d.host(m.ID, p.Cell)
			if ip.To4() != nil {
				addresses = append(addresses, &dns.A{Hdr: header(target, dns.TypeA), A: ip.To4()})
			} else {
				addresses = append(addresses, &dns.AAAA{Hdr: header(target, dns.TypeAAAA), AAAA: ip})
			}
		}
		if !isName(target) {
			return nil, fmt.Errorf("%q, of replica %s, cannot be a name in DNS", target, m.ID)
		}
		services = append(services, &dns.SRV{Hdr: header(d.service(p.Cell), dns.TypeSRV), Weight: 1, Port: uint16(port), Target: target})
	}
	return append(services, addresses...), nil
}

// asking is a connection to the name server.
type asking struct {
	server string
	key    *key // nil: nothing is signed
	client *dns.Client
	conn   net.Conn
	now    func() time.Time
}

func (d DNS) ask(ctx context.Context) (*asking, error) {
	a := &asking{server: d.Server, client: &dns.Client{Net: "tcp", Timeout: maxExchange}, now: d.Now}
	if d.KeyFile != "" {
		k, err := readKey(d.KeyFile)
		if err != nil {
			return nil, err
		}
		a.key, a.client.TsigSecret = k, map[string]string{k.name: k.secret}
	}
	bound, cancel := context.WithTimeout(ctx, maxExchange)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(bound, "tcp", d.Server)
	if err != nil {
		return nil, fmt.Errorf("connect to the name server: %w", err)
	}
	a.conn = conn
	return a, nil
}

// say sends a message and returns the answer.
func (a *asking) say(ctx context.Context, m *dns.Msg, what string) (*dns.Msg, error) {
	if a.key != nil {
		m.SetTsig(a.key.name, a.key.algorithm, signedFor, a.now().Unix())
	}
	// A dns.Conn takes the signature of its last request into that of the next, as only answers are signed (RFC 8945, 5.3).
	answer, _, err := a.client.ExchangeWithConnContext(ctx, m, &dns.Conn{Conn: a.conn})
	if answer != nil && a.key != nil {
		if t := answer.IsTsig(); t != nil && t.Error != dns.RcodeSuccess {
			return nil, fmt.Errorf("the name server %s does not accept the key %s: %s", a.server, a.key.name, dns.RcodeToString[int(t.Error)])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s at the name server %s: %w", what, a.server, err)
	}
	switch answer.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError:
		if a.key != nil && answer.IsTsig() == nil { // dns.Client checks a signature only if there is one (RFC 8945, 5.3)
			return nil, fmt.Errorf("%s: the answer of the name server %s is not signed, and may be anybody's", what, a.server)
		}
		return answer, nil
	case dns.RcodeRefused, dns.RcodeNotAuth:
		return nil, fmt.Errorf("%s: the name server %s says %s: does it have the zone, and may %s change it?", what, a.server, dns.RcodeToString[answer.Rcode], a.who())
	}
	return nil, fmt.Errorf("%s: the name server %s says %s", what, a.server, dns.RcodeToString[answer.Rcode])
}

func (a *asking) who() string {
	if a.key == nil {
		return "anybody without a key"
	}
	return "the key " + a.key.name
}

func (a *asking) question(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	return a.say(ctx, new(dns.Msg).SetQuestion(name, kind), "look up "+name)
}

// zoneOf returns the zone in which a name is.
func (a *asking) zoneOf(ctx context.Context, name string) (string, error) {
	answer, err := a.question(ctx, name, dns.TypeSOA)
	if err != nil {
		return "", err
	}
	for _, rr := range slices.Concat(answer.Answer, answer.Ns) {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa.Hdr.Name, nil
		}
	}
	return "", fmt.Errorf("the name server %s does not say in which zone %s is", a.server, name)
}

// has reports whether the answers to questions are exactly these records.
func (a *asking) has(ctx context.Context, questions []dns.Question, want []dns.RR) (bool, error) {
	has := map[string]bool{}
	for _, q := range questions {
		answer, err := a.question(ctx, q.Name, q.Qtype)
		if err != nil {
			return false, err
		}
		for _, rr := range answer.Answer {
			if rr.Header().Rrtype == q.Qtype { // and not a CNAME
				has[rr.String()] = true
			}
		}
	}
	for _, rr := range want {
		if !has[rr.String()] {
			return false, nil
		}
	}
	return len(has) == len(want), nil
}

var errNoKey = errors.New("has no key, as 'tsig-keygen' writes one")

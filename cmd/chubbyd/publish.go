package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/chubbylock/chubby/cmd/chubbyd/internal/names"
)

// publishing is how clients find the replicas by the cell's name: at most one of the two.
type publishing struct {
	dns  names.DNS  // if its Server is not empty
	hook names.Hook // if it is not empty
}

// Limits of how long others may keep a record.
const (
	defaultTTL = time.Minute
	maxTTL     = 24 * time.Hour
)

func publishKeys() []key {
	return []key{
		{"dns-server", "the primary server of a zone whose SRV records the master keeps, by dynamic updates (RFC 2136)", special("none, or host:port", none, setDNSServer, none)},
		{"dns-domain", "the zone, or a name in it: CHUBBY_DOMAIN of the clients", text(func(s *settings) *string { return &s.publishing.dns.Domain })},
		{"dns-key", "the key that signs these updates (TSIG), a file as tsig-keygen writes one", file(func(s *settings) *string { return &s.publishing.dns.KeyFile })},
		{"dns-ttl", "how long others may keep these records, 1s to 24h", duration(time.Second, maxTTL, func(s *settings) *time.Duration { return &s.publishing.dns.TTL })},
		{"dns-hook", "a program that the master runs instead, with the replicas on its standard input", special("none, or an absolute path", none, setHook, none)},
	}
}

func setDNSServer(s *settings, text string) error {
	if text == none {
		s.publishing.dns.Server = ""
		return nil
	}
	if _, _, err := net.SplitHostPort(text); err != nil {
		text = net.JoinHostPort(text, strconv.Itoa(dnsPort))
	}
	if wrong := addressProblem(text); wrong != "" {
		return errors.New(wrong)
	}
	s.publishing.dns.Server = text
	return nil
}

const dnsPort = 53

func setHook(s *settings, text string) error {
	switch {
	case text == none:
		text = ""
	case !filepath.IsAbs(text):
		return fmt.Errorf("%q is not an absolute path", text)
	}
	s.publishing.hook = names.Hook(text)
	return nil
}

func (d *draft) validatePublishing() {
	p := d.publishing
	switch {
	case p.dns.Server != "" && p.hook != "":
		d.addProblem(d.at["dns-hook"], "dns-hook: dns-server is set, too; leave out one or the other")
	case p.dns.Server != "" && p.dns.Domain == "":
		d.addProblem(d.at["dns-server"], "dns-domain is missing: in which zone are the records?")
	case p.dns.Server == "" && p.dns.Domain != "":
		d.addProblem(d.at["dns-domain"], "dns-server is missing: which server has the zone %s?", p.dns.Domain)
	case p.dns.Server == "" && p.dns.KeyFile != "":
		d.addProblem(d.at["dns-key"], "dns-server is missing: for which server is the key?")
	}
}

func (p publishing) install(s *settings) {
	switch {
	case p.hook != "":
		s.replica.Publish = p.hook.Publish
	case p.dns.Server != "":
		p.dns.Now = wallNow
		s.replica.Publish = p.dns.Publish
	}
}

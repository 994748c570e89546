package main

import (
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

func setDNSServer(s *settings, text string) error {
	if text == none {
		s.publishing.dns.Server = ""
		return nil
	}
	if _, _, err := net.SplitHostPort(text); err != nil {
		text = net.JoinHostPort(text, strconv.Itoa(dnsPort))
	}
	s.publishing.dns.Server = text
	return checkAddress(text)
}

const dnsPort = 53

func checkAbsolute(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
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

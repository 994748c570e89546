package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/contrib/promsd"
)

// settings are the configuration file.
type settings struct {
	Cell    string       `json:"cell"`    // empty is local
	Servers []string     `json:"servers"` // host:port; empty is what the environment configures (client.Servers)
	Lease   string       `json:"lease"`   // of the session, a Go duration; empty is 12s
	Listen  string       `json:"listen"`  // host:port for http_sd_configs and metrics; empty is none
	Jobs    []promsd.Job `json:"jobs"`

	lease time.Duration
}

// readSettings reads the configuration file. Its errors name the field.
func readSettings(file string) (settings, error) {
	var s settings
	if file == "" {
		return s, errors.New("-config is missing")
	}
	f, err := os.Open(file)
	if err != nil {
		return s, fmt.Errorf("-config: %w", err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("%s: there is something after the object", file)
	}
	if err := s.check(); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func (s *settings) check() error {
	var faults []error
	if s.Lease != "" {
		lease, err := time.ParseDuration(s.Lease)
		if err != nil || lease < api.MinLease || lease > api.MaxLease {
			faults = append(faults, fmt.Errorf("lease is %q; want a duration from %v to %v", s.Lease, api.MinLease, api.MaxLease))
		}
		s.lease = lease
	}
	if s.Listen != "" {
		if _, _, err := net.SplitHostPort(s.Listen); err != nil {
			faults = append(faults, fmt.Errorf("listen is %q; want host:port: %w", s.Listen, err))
		}
	}
	for i, server := range s.Servers {
		if _, _, err := net.SplitHostPort(server); err != nil {
			faults = append(faults, fmt.Errorf("servers[%d] is %q; want host:port: %w", i, server, err))
		}
	}
	for i, j := range s.Jobs {
		if j.File == "" && s.Listen == "" {
			faults = append(faults, fmt.Errorf("jobs[%d].file is empty, and so is listen: nobody could have the list", i))
		}
	}
	return errors.Join(faults...)
}

// client returns the client's configuration. The program caches nothing: it reads when something has
// changed, and those who change it should not wait for it.
func (s *settings) client() client.Config {
	return client.Config{Cell: s.Cell, Servers: s.Servers, Lease: s.lease, NoCache: true}
}

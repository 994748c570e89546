package client

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
)

// from makes sources of an environment, files and DNS records.
func from(env, files map[string]string, srv map[string][]*net.SRV) sources {
	return sources{
		getenv: func(name string) string { return env[name] },
		readFile: func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		},
		configDir: func() (string, error) { return "/home/ann/.config", nil },
		lookupSRV: func(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
			if name == "slow.example.org" {
				return "", nil, &net.DNSError{Err: "timeout", IsTimeout: true}
			}
			records, ok := srv["_"+service+"._"+proto+"."+name]
			if !ok {
				return "", nil, &net.DNSError{Err: "no such host", IsNotFound: true}
			}
			return "", records, nil
		},
	}
}

// The order of the sources, and what each may say.
func TestServers(t *testing.T) {
	const home = "/home/ann/.config/chubby/cells.yaml"
	here := []string{"127.0.0.1:7421", "127.0.0.1:7422", "127.0.0.1:7423", "127.0.0.1:7424", "127.0.0.1:7425"}
	srv := map[string][]*net.SRV{
		"_chubby._tcp.foo.example.org":  {{Target: "d1.example.org.", Port: 7421}, {Target: ".", Port: 0}, {Target: "d2.example.org.", Port: 9}},
		"_chubby._tcp.none.example.org": {{Target: ".", Port: 0}},
		"_chubby._tcp.odd.example.org":  {{Target: "d1.example.org.", Port: 0}},
	}
	type m = map[string]string
	for _, c := range []struct {
		name       string
		env, files m
		cell       string
		want       []string
		code       api.Code
	}{
		{"the environment is first", m{"CHUBBY_CELLS": "bar=x:1;foo=h1:7421,h2", "CHUBBY_DOMAIN": "example.org"}, m{home: "foo: {servers: [f:1]}"}, "foo", []string{"h1:7421", "h2:7421"}, 0},
		{"spaces and a last semicolon", m{"CHUBBY_CELLS": " foo = h1:1 , [::1]:2,::1,[::2] ; "}, nil, "foo", []string{"h1:1", "[::1]:2", "[::1]:7421", "[::2]:7421"}, 0},
		{"a cell in two entries", m{"CHUBBY_CELLS": "foo=h1;foo=h2"}, nil, "foo", []string{"h1:7421", "h2:7421"}, 0},
		{"the file is second", m{"CHUBBY_CELLS": "bar=x:1", "CHUBBY_DOMAIN": "example.org"}, m{home: "foo:\n  servers:\n    - f\n    - g:7\n"}, "foo", []string{"f:7421", "g:7"}, 0},
		{"the file that is named", m{"CHUBBY_CONFIG": "/etc/c"}, m{home: "foo: {servers: [f]}", "/etc/c": "foo: {servers: [e]}"}, "foo", []string{"e:7421"}, 0},
		{"DNS is third", m{"CHUBBY_DOMAIN": "example.org"}, m{home: "bar: {servers: [f]}"}, "foo", []string{"d1.example.org:7421", "d2.example.org:9"}, 0},
		{"DNS does not know the cell", m{"CHUBBY_DOMAIN": "example.org"}, nil, "bar", here, 0},
		{"DNS says that there is no such service", m{"CHUBBY_DOMAIN": "example.org"}, nil, "none", nil, api.Unavailable},
		{"a record without a port", m{"CHUBBY_DOMAIN": "example.org"}, nil, "odd", nil, api.InvalidArgument},
		{"nobody knows the cell", nil, m{home: ""}, "foo", here, 0},
		{"a file that is named and absent", m{"CHUBBY_CONFIG": "/etc/c"}, nil, "foo", nil, api.InvalidArgument},
		{"DNS does not answer", m{"CHUBBY_DOMAIN": "example.org"}, nil, "slow", nil, api.Unavailable},
		{"the variable is malformed, elsewhere", m{"CHUBBY_CELLS": "foo=h1;bar"}, nil, "foo", nil, api.InvalidArgument},
		{"a bad port", m{"CHUBBY_CELLS": "foo=h1:port"}, nil, "foo", nil, api.InvalidArgument},
		{"an empty address", m{"CHUBBY_CELLS": "foo=h1,,h2"}, nil, "foo", nil, api.InvalidArgument},
		{"a bad name of a cell", m{"CHUBBY_CELLS": "a/b=h1"}, nil, "foo", nil, api.InvalidArgument},
		{"the file is no YAML", nil, m{home: "foo: ["}, "foo", nil, api.InvalidArgument},
		{"an unknown key in the file", nil, m{home: "foo: {servers: [f], sevrers: [g]}"}, "foo", nil, api.InvalidArgument},
		{"a cell without servers", nil, m{home: "foo: {}"}, "foo", nil, api.InvalidArgument},
		{"a bad address in the file", nil, m{home: "foo: {servers: ['a b']}"}, "foo", nil, api.InvalidArgument},
	} {
		got, err := from(c.env, c.files, srv).servers(t.Context(), c.cell)
		if !slices.Equal(got, c.want) || api.CodeOf(err) != c.code {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, err, c.want, c.code)
		}
	}
}

// Whatever the sources say, the answer is addresses or an error.
func FuzzServers(f *testing.F) {
	seeds.Add(f)
	f.Add("foo=h1:7421,h2:7421;bar=h3:7421", "foo: {servers: [h1, '[::1]:5']}")
	f.Add("foo=", "foo: &a {servers: *a}")
	f.Add("", "? {a: b}\n: [c]")
	f.Fuzz(func(t *testing.T, cells, file string) {
		s := from(map[string]string{"CHUBBY_CELLS": cells, "CHUBBY_CONFIG": "/f"}, map[string]string{"/f": file}, nil)
		list, err := s.servers(t.Context(), "foo")
		if (len(list) > 0) != (err == nil) {
			t.Fatalf("%v, %v", list, err)
		}
		for _, address := range list {
			host, port, err := net.SplitHostPort(address)
			if err != nil || host == "" || port == "" || strings.ContainsAny(address, " ,;") {
				t.Errorf("%q: %v", address, err)
			}
			if again, err := withPort(address); err != nil || again != address {
				t.Errorf("%q becomes %q, %v", address, again, err)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	if err := (Config{}).withDefaults().validate(); err != nil {
		t.Errorf("the zero Config: %v", err)
	}
	_, err := Dial(t.Context(), Config{Cell: "a/b", Lease: 1, Grace: -1, Servers: []string{"x:y"}, As: strings.Repeat("x", 300)})
	for _, part := range []string{"Cell", "Lease", "Grace", "x:y", "As"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("all faults are reported, also %s: %v", part, err)
		}
	}
	if !errors.Is(err, api.InvalidArgument) {
		t.Errorf("%v", err)
	}
}

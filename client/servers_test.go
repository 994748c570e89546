package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/seeds"
	"github.com/chubbylock/chubby/session"
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
	wants(t, "the zero Config", (Config{}).withDefaults().validate(), nil)
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

// The certificates and the token for a cell are those of the variables, else of its entry in the file of cells.
func TestIdentityOfACell(t *testing.T) {
	const file = "foo: {servers: [h1], cacert: ca.crt, cert: /c/own.crt, key: own.key}\nbar: {servers: [h2]}\n"
	for name, c := range map[string]struct {
		env   map[string]string
		file  string // "" if there is none
		cell  string
		want  TLSFiles
		token string
		err   string
	}{
		"nowhere":             {cell: "foo"},
		"in the file":         {file: file, cell: "foo", want: TLSFiles{CA: "/etc/chubby/ca.crt", Cert: "/c/own.crt", Key: "/etc/chubby/own.key"}},
		"of another cell":     {file: file, cell: "bar"},
		"of none":             {file: file, cell: "baz"},
		"by variables":        {env: map[string]string{"CHUBBY_CACERT": "a", "CHUBBY_CERT": "b", "CHUBBY_KEY": "c"}, file: file, cell: "foo", want: TLSFiles{CA: "a", Cert: "b", Key: "c"}},
		"by one variable":     {env: map[string]string{"CHUBBY_CACERT": "a"}, file: file, cell: "foo", want: TLSFiles{CA: "a", Cert: "/c/own.crt", Key: "/etc/chubby/own.key"}},
		"a token by variable": {env: map[string]string{"CHUBBY_TOKEN_FILE": "t"}, file: file, cell: "foo", want: TLSFiles{CA: "/etc/chubby/ca.crt"}, token: "t"},
		"a token in the file": {file: "foo: {cacert: ca.crt, token-file: t}\n", cell: "foo", want: TLSFiles{CA: "/etc/chubby/ca.crt"}, token: "/etc/chubby/t"},
		"a token alone":       {file: "foo: {token-file: t}\n", cell: "foo", err: "needed together"},
		"two identities":      {file: "foo: {cacert: ca.crt, cert: c, key: k, token-file: t}\n", cell: "foo", err: "either"},
		"half an entry":       {file: "foo: {servers: [h1], cert: own.crt}\n", cell: "foo", err: "needed together"},
		"a malformed file":    {file: "foo: [", cell: "foo", err: "malformed"},
		"another's own file":  {env: map[string]string{"CHUBBY_CONFIG": "/other/cells.yaml"}, file: file, cell: "foo", want: TLSFiles{CA: "/other/ca.crt", Cert: "/c/own.crt", Key: "/other/own.key"}},
	} {
		s := sources{
			getenv:    func(name string) string { return c.env[name] },
			configDir: func() (string, error) { return "/etc", nil },
			readFile: func(path string) ([]byte, error) {
				if filepath.Base(path) != "cells.yaml" || c.file == "" {
					return nil, fs.ErrNotExist
				}
				return []byte(c.file), nil
			},
		}
		got, err := s.identity(c.cell)
		if got != (identity{c.want, c.token}) || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %q, %q", name, got, err, c.want, c.token, c.err)
		}
	}
}

// Certificates that cannot be used are refused before anything is dialled.
func TestTLSFilesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		files TLSFiles
		want  string
	}{
		"no authority": {TLSFiles{Cert: "c", Key: "k"}, "name no CA"},
		"no file":      {TLSFiles{CA: filepath.Join(t.TempDir(), "none")}, "no such file"},
	} {
		if _, err := Dial(t.Context(), Config{Servers: []string{"127.0.0.1:1"}, TLS: c.files}); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Where nothing passes the way to the replica for longer than an attempt to connect
// takes, and the connections of before stay silent, another is tried again while the
// master is looked for.
func TestSilentConnectionAndLostPackets(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg, r := f.recorded()
		w := NewWires(cfg.Dialer)
		var dark atomic.Int64 // no attempt to connect that begins before ends well
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if time.Since(f.began) < time.Duration(dark.Load()) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return w.Dial(ctx, address)
		}
		c := f.client(cfg)
		l := acquired(t, lockable(t, c, 0))
		time.Sleep(22 * time.Second)
		synctest.Wait()
		sent := f.heard("KeepAlive")
		due := sent[len(sent)-1].at + session.Due(c.Lease())
		dark.Store(int64(due + c.Lease()/12 + 3*time.Second/2))
		w.Silence("", false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.states()) > 0 || l.Err() != nil {
			t.Errorf("states %v, and the lock: %v", r.states(), l.Err())
		}
	})
}

// What gives back over a connection that has fallen silent since the last KeepAlive was
// sent has another within seconds.
func TestGivingBackOverASilentConnection(t *testing.T) {
	for what, give := range map[string]func(context.Context, *Client, *Lock) error{
		"Lock.Release": func(ctx context.Context, _ *Client, l *Lock) error { return l.Release(ctx) },
		"Handle.Close": func(ctx context.Context, _ *Client, l *Lock) error { return l.handle.Close(ctx) },
		"Client.Close": func(ctx context.Context, c *Client, _ *Lock) error { return c.Close(ctx) },
	} {
		runInBubble(t, what, func(t *testing.T, f *fake) {
			c, l, w, _ := holder(t, f)
			time.Sleep(22 * time.Second)
			w.Silence("", false)
			began := time.Now()
			if err := give(t.Context(), c, l); err != nil || time.Since(began) > 4*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if held := f.state().held; held != 0 {
				t.Errorf("the lock is held: %d", held)
			}
		})
	}
}

// A session that is opened over connections that have fallen silent, while no other session
// is there to find that out, is opened within seconds.
func TestNewSessionOverASilentConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		w := NewWires(cfg.Dialer)
		cfg.Dialer = w.Dial
		cell := f.dialled(cfg)
		closeClient(t, f.session(cell, cfg.Session()))
		w.Silence("", false)
		began := time.Now()
		f.session(cell, cfg.Session())
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A replica that takes long to connect to is not connected to twice: it may be busy with
// many who look for the master.
func TestConnectingIsNotSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		f.cut("a:1")
		cfg := f.config()
		var now, most atomic.Int64 // attempts under way
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			if address != "b:1" {
				return f.dial(ctx, address)
			}
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		wants(t, "New", second(New(bounded(t, 10*time.Second), cfg)), api.Unavailable)
		if n := most.Load(); n != 1 {
			t.Errorf("%d attempts to connect to one replica at a time", n)
		}
	})
}

// slowConn takes its time to write.
type slowConn struct {
	net.Conn
	rate *atomic.Int64 // bytes a second; 0 is no limit
}

func (c *slowConn) Write(p []byte) (int, error) {
	if rate := c.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(rate))
	}
	return c.Conn.Write(p)
}

// However many Opens are settled at a time that were done and left without an answer, and
// whatever they bring along, all sessions are kept alive, also over a slow network.
func TestKeepAlivesWaitForNoSettledOpen(t *testing.T) {
	for _, size := range []int{maxSmallOpen, maxSmallOpen + 1, largeRequest} {
		runInBubble(t, fmt.Sprint(size), func(t *testing.T, f *fake) {
			var rate atomic.Int64
			cfg := f.config()
			dial := cfg.Dialer
			cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := dial(ctx, address)
				return &slowConn{conn, &rate}, err
			}
			cell := f.dialled(cfg)
			var clients []*Client
			var changes atomic.Int64
			for range maxCleanupCalls + maxCleanupCalls/2 {
				s := cfg.Session()
				s.OnState = func(StateChange) { changes.Add(1) }
				clients = append(clients, f.session(cell, s))
			}
			f.on("Open", mute)
			within := bounded(t, lateAfter)
			var opens sync.WaitGroup
			for _, c := range clients {
				opens.Go(func() {
					_, _ = c.Open(within, "/ls/foo/x", OpenOptions{Write: true, Create: File, Contents: make([]byte, size)})
				})
			}
			time.Sleep(lateAfter * 9 / 10)
			rate.Store(125_000)
			f.script(nil)
			opens.Wait()
			time.Sleep(40 * time.Second)
			failed := uint64(0)
			for _, c := range clients {
				failed += c.Stats().KeepAlivesFailed
			}
			if failed > 0 || changes.Load() > 0 {
				t.Errorf("%d KeepAlives failed, %d changes of state", failed, changes.Load())
			}
			rate.Store(0)
			time.Sleep(20 * time.Second) // what is being written has been
			synctest.Wait()
		})
	}
}

package cell_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	door "github.com/chubbylock/chubby/cell/internal/wire"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
)

// Only a member of the cell speaks for others at the client port, by its certificate for the other replicas. What it says is not done with its
// own rights: the guest's count. Whoever has another certificate, and names an operator, is refused.
func TestSpeakers(t *testing.T) {
	crl, own := filepath.Join(t.TempDir(), "replicas.crl"), map[string]string{}
	var starting sync.Mutex
	inSecureConsoleCell(t, func(t *testing.T, ctx context.Context, c *consoleCell) {
		speak := func(files certs.Files, guest, protocol string) *client.Cell {
			pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
			c.clients.check(err)
			config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}
			cl, err := client.Dial(ctx, client.Config{Servers: c.Servers(), Clock: celltest.Clock, NoTLS: true, Dialer: func(ctx context.Context, address string) (net.Conn, error) {
				conn, err := c.DialFrom("far")(ctx, address)
				if err != nil {
					return nil, err
				}
				encrypted := tls.Client(conn, config)
				return encrypted, errors.Join(encrypted.HandshakeContext(ctx), door.Guest{Principal: guest, Address: "192.0.2.7:1"}.Introduce(encrypted))
			}})
			c.clients.check(err)
			return cl
		}
		look := func(cl *client.Cell) (operator bool, err error) {
			limit, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			o, err := cl.Overview(limit, 1)
			return o.Whole, err
		}
		replica := func(a authority, id string) certs.Files {
			return a.put(a.IssueReplica(certs.Replica{Cell: "local", ID: id}, time.Hour))
		}
		r2 := replica(c.replicas, "r2")
		for who, one := range map[string]struct {
			files certs.Files
			guest string
			want  string
		}{
			"a client":                             {c.clients.client("alice"), "ops", "does not count"},
			"an operator":                          {c.clients.client("ops"), "alice", "does not count"},
			"a replica of the clients' authority":  {replica(c.clients, "r2"), "ops", "does not count"},
			"a client of the replicas' authority":  {c.replicas.client("ops"), "ops", "names 0 replicas"},
			"a replica that is no member":          {replica(c.replicas, "r9"), "ops", "no member"},
			"a replica of another cell":            {c.replicas.put(c.replicas.IssueReplica(certs.Replica{Cell: "other", ID: "r2"}, time.Hour)), "ops", "no member"},
			"a member, for a name of another kind": {r2, "@operators", "cannot be a principal"},
			"a member, for nobody":                 {r2, "", "cannot be a principal"},
		} {
			cl := speak(one.files, one.guest, door.GuestProtocol)
			if _, err := look(cl); !errors.Is(err, api.Unauthenticated) || !strings.Contains(err.Error(), one.want) {
				t.Errorf("%s speaks for %.20q: %v, want %q", who, one.guest, err, one.want)
			}
			_ = cl.Close()
		}
		for what, cl := range map[string]*client.Cell{
			"with an endless introduction":           speak(r2, strings.Repeat("a", 3<<10), door.GuestProtocol),
			"without asking for it, as clients call": speak(r2, "ops", "h2"),
		} {
			if _, err := look(cl); err == nil {
				t.Errorf("a member speaks for somebody %s", what)
			}
			_ = cl.Close()
		}
		for guest, want := range map[string]bool{"alice": false, "ops": true} {
			cl := speak(r2, guest, door.GuestProtocol)
			if operator, err := look(cl); err != nil || operator != want {
				t.Errorf("for %s a member is told as an operator: %v, %v", guest, operator, err)
			}
			c.replicas.revoke(crl, r2.Cert)
			time.Sleep(12 * time.Second) // virtual: the file is read, and connections are looked at
			synctest.Wait()
			if _, err := look(cl); !errors.Is(err, api.Unauthenticated) {
				t.Errorf("the certificate of the replica was revoked, and it speaks for others: %v", err)
			}
			_ = cl.Close()
			c.replicas.revoke(crl)
			time.Sleep(12 * time.Second)
		}
		conn, err := c.Replica("r1").DialForGuest(ctx, "alice", c.Servers()[2])
		c.clients.check(err)
		defer conn.Close()
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Errorf("r1 speaks at r3: %v", err)
		}
		c.replicas.revoke(crl, own["r3"])
		time.Sleep(12 * time.Second)
		if _, err := conn.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("r1 speaks at r3, whose certificate was revoked: %v", err)
		}
	}, func(cfg *cell.Config) {
		starting.Lock() // replicas start at once
		defer starting.Unlock()
		if own[cfg.ID] = cfg.PeerTLS.Cert; len(own) == 1 {
			pair, err := certs.ReadPair(cfg.PeerTLS.CA, strings.TrimSuffix(cfg.PeerTLS.CA, "crt")+"key")
			if err != nil {
				t.Error(err)
			}
			authority{Pair: pair, t: t}.revoke(crl)
		}
		cfg.PeerTLS.CRL = crl
	})
}

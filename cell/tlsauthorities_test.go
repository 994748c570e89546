package cell_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
)

// The authorities of both ports are changed while a lock is held, as docs/operations.md says ("Change an authority"): everybody believes both, gets new
// certificates, and believes the new ones alone; one replica after the other. Nothing is lost, no other master is needed, and who has an old certificate is refused at the end.
func TestAuthoritiesAreChangedWithoutAStop(t *testing.T) {
	ids := []string{"r1", "r2", "r3"}
	files := map[string][2]certs.Files{} // of each replica: those of the client port, and of the Raft port
	dir := t.TempDir()
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		pause := func() { time.Sleep(6 * time.Second) } // in which files are read again
		text := func(name string) []byte {
			read, err := os.ReadFile(name)
			c.clients.check(err)
			return read
		}
		believe := func(f certs.Files, authorities ...authority) {
			var all []byte
			for _, a := range authorities {
				all = append(all, text(a.file)...)
			}
			c.clients.check(os.WriteFile(f.CA, all, 0o600))
		}
		show := func(f certs.Files, made certs.Pair, err error) {
			c.clients.check(errors.Join(err, os.Remove(f.Cert), os.Remove(f.Key)))
			c.clients.check(made.Write(f.Cert, f.Key))
		}
		old := c.clients.client("bob")
		alice := c.clients.client("alice")
		alice.CA = filepath.Join(dir, "alice-ca.crt")
		believe(alice, c.clients)
		cl := dial(t, ctx, c.Cell, "alice", client.Config{TLS: alice})
		lock := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", 0))
		epoch := c.Replica(c.Master()).Health().Epoch
		next := [2]authority{newAuthority(t), newAuthority(t)}

		for _, id := range ids {
			believe(files[id][0], c.clients, next[0])
			believe(files[id][1], c.replicas, next[1])
			pause()
		}
		believe(alice, c.clients, next[0])
		pause()
		for _, id := range ids {
			made, err := next[0].IssueServer([]string{id}, time.Hour)
			show(files[id][0], made, err)
			made, err = next[1].IssueReplica(certs.Replica{Cell: "local", ID: id}, time.Hour)
			show(files[id][1], made, err)
			pause()
		}
		made, err := next[0].IssueClient("alice", time.Hour)
		show(alice, made, err)
		pause()
		for _, id := range ids {
			believe(files[id][0], next[0])
			believe(files[id][1], next[1])
			pause()
		}
		believe(alice, next[0])
		pause()

		if now := c.Replica(c.Master()).Health().Epoch; now != epoch {
			t.Errorf("the master of epoch %d was replaced, in epoch %d", epoch, now)
		}
		if err := lock.Context().Err(); err != nil {
			t.Error("the lock is lost:", context.Cause(lock.Context()))
		}
		old.CA = next[0].file // so that the client believes the servers
		_, err = client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("bob"), Clock: celltest.Clock, TLS: old})
		if !errors.Is(err, api.Unauthenticated) {
			t.Errorf("a certificate of the old authority: %v", err)
		}
		c.Restart(c.FailOver())
		if err := lock.Release(ctx); err != nil {
			t.Error(err)
		}
	}, func(cfg *cell.Config) {
		own, again := files[cfg.ID]
		if !again { // else it is started again
			own = [2]certs.Files{cfg.ClientTLS, cfg.PeerTLS}
			for i, port := range []string{"client", "peer"} {
				authority, err := os.ReadFile(own[i].CA)
				own[i].CA, own[i].CRL = filepath.Join(dir, cfg.ID+"-"+port+"-ca.crt"), ""
				if err := errors.Join(err, os.WriteFile(own[i].CA, authority, 0o600)); err != nil {
					t.Error(err)
				}
			}
			files[cfg.ID] = own
		}
		cfg.ClientTLS, cfg.PeerTLS = own[0], own[1]
	})
}

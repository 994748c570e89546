package cell_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
)

// Who creates a session under the nonce of another principal's is not given that one's session.
func TestTLSBindsNonces(t *testing.T) {
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		create := func(principal string) (*pb.CreateSessionReply, error) {
			reply, err := pb.NewChubbyClient(c.link(t, ctx, c.clients.client(principal))).CreateSession(ctx, &pb.CreateSessionRequest{Cell: "local", Nonce: []byte("0123456789abcdef")})
			return reply, pb.Error(err)
		}
		hers := must(create("alice"))(t)
		if again, err := create("alice"); err != nil || again.GetId() != hers.GetId() {
			t.Errorf("alice, once more: session %d, %v; want %d", again.GetId(), err, hers.GetId())
		}
		if his, err := create("bob"); !errors.Is(err, api.InvalidArgument) {
			t.Errorf("bob is given session %d, %v", his.GetId(), err)
		}
	})
}

// What would make clients into replicas, or any server into this one, is a fault of the configuration, as is a replica that the cell's roster cannot
// have: no replica could ever be added or removed.
func TestTLSConfigurations(t *testing.T) {
	one, other := newAuthority(t), newAuthority(t)
	for name, c := range map[string]struct {
		edit func(*cell.Config)
		want string
	}{
		"one authority": {func(cfg *cell.Config) {
			cfg.PeerTLS = one.put(one.IssueReplica(certs.Replica{Cell: "local", ID: "r1"}, time.Hour))
		}, "in common"},
		"another replica's": {func(cfg *cell.Config) {
			cfg.PeerTLS = other.put(other.IssueReplica(certs.Replica{Cell: "local", ID: "r2"}, time.Hour))
		}, "does not name this replica"},
		"no host in what is advertised": {func(cfg *cell.Config) { cfg.Advertise = ":7421" }, "names no host"},
		"no host in a member":           {func(cfg *cell.Config) { cfg.Members[0].Client = ":7421" }, "is not host:port"},
		"an ID that no roster can have": {func(cfg *cell.Config) { cfg.ID, cfg.Members[0].ID = "n+1", "n+1" }, "is no replica's id"},
		"an ID that is too long":        {func(cfg *cell.Config) { cfg.Members[0].ID = strings.Repeat("n", 65) }, "is no replica's id"},
	} {
		cfg := cell.Config{
			Cell: "local", ID: "r1", Data: t.TempDir(), Bootstrap: true, Clock: celltest.Clock,
			Members:   []cell.Member{{ID: "r1", Client: "127.0.0.1:0", Raft: "localhost:0"}},
			ClientTLS: one.put(one.IssueServer([]string{"h"}, time.Hour)),
			PeerTLS:   other.put(other.IssueReplica(certs.Replica{Cell: "local", ID: "r1"}, time.Hour)),
		}
		c.edit(&cfg)
		r, err := cell.Start(t.Context(), cfg)
		if err == nil {
			_ = r.Stop(t.Context())
		}
		if !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A replica that runs does not take over an authority of both ports either: who has a certificate of the replicas' is no client,
// everybody else goes on, and the log says why.
func TestTLSAuthoritiesStayApart(t *testing.T) {
	logged := &testbed.Lines{}
	inTLSCell(t, 1, func(t *testing.T, ctx context.Context, c tlsCell) {
		connect := func(files certs.Files) error {
			files.CA = c.clients.file
			limit, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			cl, err := client.New(limit, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("far"), Clock: celltest.Clock, TLS: files})
			if err == nil {
				err = cl.Close(ctx)
			}
			return err
		}
		own := must(os.ReadFile(c.clients.file))(t)
		theirs := must(os.ReadFile(c.replicas.file))(t)
		c.clients.check(os.WriteFile(c.clients.file, append(own, theirs...), 0o600))
		time.Sleep(12 * time.Second) // virtual: the files are read twice
		if err := connect(c.replicas.client("mallory")); !errors.Is(err, api.Unauthenticated) {
			t.Errorf("a certificate by the replicas' authority counts for a client: %v", err)
		}
		report(t, connect(c.clients.client("alice")), "of a client as before")
		if why := "have an authority in common"; !strings.Contains(strings.Join(logged.Take(), ""), why) {
			t.Errorf("the log does not say that the files %s", why)
		}
	}, func(cfg *cell.Config) { cfg.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
}

// The authorities of both ports are changed while a lock is held, as docs/operations.md says ("Change an authority"): everybody believes both, gets new
// certificates, and believes the new ones alone; one replica after the other. Nothing is lost, no other master is needed, and who has an old certificate is refused at the end.
func TestAuthoritiesAreChangedWithoutAStop(t *testing.T) {
	ids := []string{"r1", "r2", "r3"}
	files := map[string][2]certs.Files{} // of each replica: those of the client port, and of the Raft port
	dir := t.TempDir()
	inTLSCell(t, 3, func(t *testing.T, ctx context.Context, c tlsCell) {
		pause := func() { time.Sleep(6 * time.Second) } // in which files are read again
		text := func(name string) []byte {
			read := must(os.ReadFile(name))(t)
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
		fails(t, err, api.Unauthenticated, "a certificate of the old authority")
		c.Restart(c.FailOver())
		report(t, lock.Release(ctx))
	}, func(cfg *cell.Config) {
		own, again := files[cfg.ID]
		if !again { // else it is started again
			own = [2]certs.Files{cfg.ClientTLS, cfg.PeerTLS}
			for i, port := range []string{"client", "peer"} {
				authority, err := os.ReadFile(own[i].CA)
				own[i].CA, own[i].CRL = filepath.Join(dir, cfg.ID+"-"+port+"-ca.crt"), ""
				report(t, errors.Join(err, os.WriteFile(own[i].CA, authority, 0o600)))
			}
			files[cfg.ID] = own
		}
		cfg.ClientTLS, cfg.PeerTLS = own[0], own[1]
	})
}

// The warning of /readyz, which everybody may read, names keys of the configuration; the log has the files.
func TestWarningsNameNoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, replicas, log := newAuthority(t), newAuthority(t), &testbed.Lines{}
		tc := &tokenCell{tlsCell: tlsCell{clients: clients}, keys: t.TempDir() + "/keys.json"}
		tc.issuer = newTokenIssuer(t, clients)
		tc.writeKeys(tc.issuer)
		var files cell.TLSFiles
		c := celltest.Start(t, 1, func(cfg *cell.Config) {
			cfg.InsecurePrincipals = false
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			files = clients.put(clients.IssueServer([]string{cfg.ID}, 3*time.Minute))
			cfg.ClientTLS = files
			cfg.PeerTLS = replicas.put(replicas.IssueReplica(certs.Replica{Cell: cfg.Cell, ID: cfg.ID}, time.Hour))
			cfg.Tokens = cell.TokenConfig{Keys: tc.keys, Issuer: tokenIssuer, Audience: tokenAudience}
		})
		r := c.Replica(c.Master())
		if got := r.Health().Warning; got != "" {
			t.Fatalf("the warning is %q", got)
		}
		noErr(t, os.Remove(tc.keys))
		testbed.Pass(10 * time.Second)
		if got := r.Health().Warning; got != "the keys of tokens (token-keys) cannot be read; the log says why" {
			t.Errorf("without the keys of tokens the warning is %q", got)
		}
		testbed.Pass(150 * time.Second)
		if got := r.Health().Warning; !strings.HasPrefix(got, "the certificate in tls-cert expires on ") || strings.Contains(got, "/") {
			t.Errorf("before the end of the certificate the warning is %q", got)
		}
		lines := strings.Join(log.Take(), "")
		for _, want := range []string{tc.keys, "the certificate in tls-cert expires on ", "file=" + files.Cert} {
			failIf(t, strings.Count(lines, want) == 0, "the log does not have %q", want)
		}
		if n := strings.Count(lines, "the certificate in tls-cert expires on "); n > 1 {
			t.Errorf("the log has the warning %d times", n)
		}
	})
}

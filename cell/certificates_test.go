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
	"github.com/chubbylock/chubby/internal/frames"
)

// Who creates a session under the nonce of another principal's is not given that one's session, and its token is of no use over a
// connection of another principal.
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

		alice, again, bob := c.link(t, ctx, c.clients.client("alice")), c.link(t, ctx, c.clients.client("alice")), c.link(t, ctx, c.clients.client("bob"))
		caller := &pb.Caller{Session: hers.GetSession(), Epoch: hers.GetEpoch()}
		for name, one := range map[string]struct {
			over *frames.Link
			want error
		}{"her own": {alice, nil}, "another of hers": {again, nil}, "bob's": {bob, api.SessionExpired}} {
			for method, call := range map[string]func(pb.ChubbyClient) error{
				"KeepAlive": func(cl pb.ChubbyClient) error {
					_, err := cl.KeepAlive(ctx, &pb.KeepAliveRequest{Caller: caller})
					return err
				},
				"KeepAlives": func(cl pb.ChubbyClient) error {
					replies, err := cl.KeepAlives(ctx, &pb.KeepAliveRequest{Caller: caller})
					if err == nil {
						_, err = replies.Recv()
					}
					return err
				},
				"Open": func(cl pb.ChubbyClient) error {
					_, err := cl.Open(ctx, &pb.OpenRequest{Caller: caller, Path: "/ls/local"})
					return err
				},
			} {
				err := pb.Error(call(pb.NewChubbyClient(one.over)))
				if method == "Open" && one.want == nil {
					failIf(t, errors.Is(err, api.SessionExpired), "%s over a connection that is %s: %v", method, name, err)
					continue
				}
				failIf(t, !errors.Is(err, one.want), "%s over a connection that is %s: got %v, want %v", method, name, err, one.want)
			}
		}
		if _, err := pb.NewChubbyClient(bob).EndSession(ctx, &pb.EndSessionRequest{Caller: caller}); !errors.Is(pb.Error(err), api.SessionExpired) {
			t.Errorf("bob ends alice's session: %v", err)
		}
	})
}

// What would make clients into replicas, or any server into this one, is a fault of the configuration, as is a replica that the cell's roster cannot
// have: no replica could ever be added or removed; and so is an audit log that cannot be had.
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
		"an audit log in no directory":  {func(cfg *cell.Config) { cfg.Audit.File = filepath.Join(cfg.Data, "none", "log") }, "audit-file"},
		"less than no audit log":        {func(cfg *cell.Config) { cfg.Audit.Files = -1 }, "audit-files"},
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
		failIf(t, !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), c.want), "%s: %v, want %q", name, err, c.want)
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
	}, calm, func(cfg *cell.Config) {
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

// The warning of /readyz, which everybody may read, names keys of the configuration; the log has the files. Each thing that is wrong with
// certificates and keys is in the log once for each port, however long it is so, and again when it comes again.
func TestWarningsNameNoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, replicas, log := newAuthority(t), newAuthority(t), &logged{}
		tc := &tokenCell{tlsCell: tlsCell{clients: clients}, keys: filepath.Join(t.TempDir(), "keys.json")}
		tc.issuer = newTokenIssuer(t, clients)
		tc.writeKeys(tc.issuer)
		var own, peer cell.TLSFiles
		crl := filepath.Join(t.TempDir(), "ca.crl")
		clients.revoke(crl)
		c := celltest.Start(t, 1, log.to, func(cfg *cell.Config) {
			cfg.InsecurePrincipals = false
			own = clients.put(clients.IssueServer([]string{cfg.ID}, 45*time.Minute))
			own.CRL = crl
			peer = replicas.put(replicas.IssueReplica(certs.Replica{Cell: cfg.Cell, ID: cfg.ID}, time.Hour))
			cfg.ClientTLS, cfg.PeerTLS = own, peer
			cfg.Tokens = cell.TokenConfig{Keys: tc.keys, Issuer: tokenIssuer, Audience: tokenAudience}
		})
		r := c.Replica(c.Master())
		time.Sleep(time.Minute) // virtual
		equal(t, r.Health().Warning, "", "the warning is %q")
		for _, event := range []string{"certificate_due", "certificate_unread", "token_keys_unread"} {
			log.has(t, event)
		}
		away := func(file, warning string) {
			t.Helper()
			clients.check(os.Rename(file, file+".away"))
			time.Sleep(5 * time.Minute) // virtual
			equal(t, r.Health().Warning, warning, "the warning is %q")
			clients.check(os.Rename(file+".away", file))
			time.Sleep(time.Minute) // virtual
		}
		away(tc.keys, "the keys of tokens (token-keys) cannot be read; the log says why")
		log.has(t, "token_keys_unread", logLine{"replica": "r1"})
		failIf(t, !strings.Contains(log.String(), tc.keys), "the log does not have %q", tc.keys)
		missing := func(file string) string { return "stat " + file + ": no such file or directory" }
		want := []logLine{{"port": "tls", "error": missing(own.Key)}, {"port": "peer-tls", "error": missing(peer.CA)}}
		away(own.Key, "")
		away(peer.CA, "")
		log.has(t, "certificate_unread", want...)
		away(own.Key, "")
		log.has(t, "certificate_unread", append(want, want[0])...)
		time.Sleep(6 * time.Minute) // virtual: less than a third of its 45 minutes is left
		log.has(t, "certificate_due", logLine{"file": own.Cert, "ca": own.CA, "crl": own.CRL})
		if got := r.Health().Warning; !strings.HasPrefix(got, "the certificate in tls-cert expires on ") || strings.Contains(got, "/") {
			t.Errorf("before the end of the certificate the warning is %q", got)
		}
		checkLogTables(t, log)
	})
}

package cell_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/internal/certs"
	"github.com/chubbylock/chubby/internal/tokens"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const tokenIssuer, tokenAudience = "https://issuer.test", "chubby"

// tokenCell is a cell that takes tokens, besides certificates.
type tokenCell struct {
	tlsCell
	issuer tokens.Issuer
	keys   string // the file of its keys
}

func newTokenIssuer(t testing.TB, c authority) tokens.Issuer {
	t.Helper()
	i, err := tokens.NewIssuer(tokenIssuer, nil)
	c.check(err)
	return i
}

func (c *tokenCell) writeKeys(issuers ...tokens.Issuer) {
	text := must(tokens.KeySet(issuers...))(c.clients.t)
	c.clients.check(os.WriteFile(c.keys, text, 0o600))
}

// write writes a token into a file.
func (c *tokenCell) write(file, principal string, lifetime time.Duration) {
	token := must(c.issuer.Issue(principal, tokenAudience, lifetime))(c.clients.t)
	c.clients.check(os.WriteFile(file, []byte(token+"\n"), 0o600))
}

func (c *tokenCell) token(principal string, lifetime time.Duration) (file string) {
	file = filepath.Join(c.clients.t.TempDir(), "token")
	c.write(file, principal, lifetime)
	return file
}

// config is the configuration of a client that shows a token.
func (c *tokenCell) config(file string) client.Config {
	return client.Config{TLS: certs.Files{CA: c.clients.file}, Credentials: client.TokenFile(file)}
}

func inTokenCell(t *testing.T, replicas int, test func(t *testing.T, ctx context.Context, c *tokenCell), edits ...func(*cell.Config)) {
	t.Helper()
	tc := &tokenCell{keys: filepath.Join(t.TempDir(), "keys.json")}
	inTLSCell(t, replicas, func(t *testing.T, ctx context.Context, c tlsCell) {
		tc.tlsCell = c
		test(t, ctx, tc)
	}, append([]func(*cell.Config){func(cfg *cell.Config) {
		if tc.issuer.Key == nil { // for the first replica
			tc.clients.t = t
			tc.issuer = newTokenIssuer(t, tc.clients)
			tc.writeKeys(tc.issuer)
		}
		cfg.Tokens = cell.TokenConfig{Keys: tc.keys, Issuer: tokenIssuer, Audience: tokenAudience}
	}}, edits...)...)
}

// A client is who its token says, before and after the death of a master, and beside clients with certificates.
func TestTokens(t *testing.T) {
	inTokenCell(t, 3, func(t *testing.T, ctx context.Context, c *tokenCell) {
		cl := dial(t, ctx, c.Cell, "alice", c.config(c.token("system:serviceaccount:shop:billing", time.Hour)))
		lock := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", 0))
		c.FailOver()
		other := c.as(t, ctx, "bob")
		fails(t, errOf(open(t, ctx, other, "/ls/local/lock", 0).TryAcquire(ctx, api.Exclusive)), api.LockHeld, "the lock")
		sessions, err := other.Cell().Sessions(ctx)
		var names []string
		for _, s := range sessions {
			names = append(names, s.Principal)
		}
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"bob", "system:serviceaccount:shop:billing"}) {
			t.Errorf("the sessions are of %q, %v", names, err)
		}
		report(t, lock.Release(ctx))
	})
}

// A token that does not count is refused with the reason.
func TestTokensRefused(t *testing.T) {
	inTokenCell(t, 1, func(t *testing.T, ctx context.Context, c *tokenCell) {
		stranger := *c
		stranger.issuer = newTokenIssuer(t, c.clients)
		for name, one := range map[string]struct {
			cfg  client.Config
			want string
		}{
			"none":                        {client.Config{TLS: certs.Files{CA: c.clients.file}}, "neither a certificate nor a token"},
			"expired":                     {c.config(c.token("alice", -time.Minute)), "has expired"},
			"of another issuer's key":     {c.config(stranger.token("alice", time.Hour)), "none of its issuer's"},
			"a name with another sense":   {c.config(c.token("@operators", time.Hour)), "cannot be a principal"},
			"no name":                     {c.config(c.token("", time.Hour)), "names a principal"},
			"one beside a certificate":    {client.Config{TLS: c.clients.client("alice"), Credentials: client.TokenFile(c.token("bob", time.Hour))}, "a client shows either"},
			"of a file that is not there": {c.config(filepath.Join(t.TempDir(), "none")), "no such file"},
		} {
			began := time.Now()
			cfg := one.cfg
			cfg.Servers, cfg.Dialer, cfg.Clock = c.Servers(), c.DialFrom("stranger"), celltest.Clock
			_, err := client.New(ctx, cfg)
			failIf(t, err == nil || !strings.Contains(err.Error(), one.want), "%s: got %v, want %q", name, err, one.want)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("%s: after %v", name, took)
			}
		}
	})
}

// Who holds a lock keeps it over the end of its token, if another is in its place by then.
func TestTokensAreRenewed(t *testing.T) {
	inTokenCell(t, 1, func(t *testing.T, ctx context.Context, c *tokenCell) {
		file := c.token("alice", time.Minute)
		cl := dial(t, ctx, c.Cell, "alice", c.config(file))
		lock := acquire(t, ctx, open(t, ctx, cl, "/ls/local/lock", 0))
		for range 20 {
			time.Sleep(30 * time.Second)
			c.write(file, "alice", time.Minute)
		}
		if err := lock.Context().Err(); err != nil {
			t.Error("the lock is lost:", context.Cause(lock.Context()))
		}
		report(t, lock.Release(ctx))
	})
}

// A connection ends with its token, and with the key that has signed it.
func TestTokensEnd(t *testing.T) {
	for name, end := range map[string]func(c *tokenCell){
		"expired": func(*tokenCell) { time.Sleep(time.Minute + 36*time.Second) }, // with what clocks may differ, and how often it is looked
		"the key is gone": func(c *tokenCell) {
			c.writeKeys(newTokenIssuer(c.clients.t, c.clients))
			time.Sleep(11 * time.Second) // the keys are looked at every five, and so are those who are connected
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTokenCell(t, 1, func(t *testing.T, ctx context.Context, c *tokenCell) {
				cl := dial(t, ctx, c.Cell, "alice", c.config(c.token("alice", time.Minute)))
				h := open(t, ctx, cl, "/ls/local/file", 0)
				must(h.SetContents(ctx, []byte("x")))(t)
				end(c)
				limit, cancel := context.WithTimeout(ctx, 3*time.Second)
				defer cancel()
				failIf(t, errOf(h.SetContents(limit, []byte("y"))) == nil, "it may write")
			})
		})
	}
}

// A program without the library says who it is in the metadata of its calls, or by a call. A connection that names nobody is closed.
func TestTokensOverGRPC(t *testing.T) {
	inTokenCell(t, 1, func(t *testing.T, ctx context.Context, c *tokenCell) {
		over := func(files certs.Files) *grpc.ClientConn {
			t.Helper()
			return connect(t, c.Dial, c.Master(), must(certs.Open(files))(t).Client(c.Master(), nil)).conn
		}
		issue := func(principal string) string {
			token := must(c.issuer.Issue(principal, tokenAudience, time.Hour))(t)
			return token
		}
		with := func(header string) context.Context {
			return metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		whoami := func(conn *grpc.ClientConn, ctx context.Context, token string) (string, error) {
			reply, err := pb.NewCellClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Token: token})
			return reply.GetPrincipal(), pb.Error(err)
		}
		expect := func(what, principal string, err error, want string) {
			t.Helper()
			if want == "" && !errors.Is(err, api.Unauthenticated) || want != "" && (err != nil || principal != want) {
				t.Errorf("%s: got %q, %v, want %q", what, principal, err, want)
			}
		}
		conn := over(certs.Files{CA: c.clients.file})
		alice := issue("alice")
		who, err := whoami(conn, with("Bearer "+alice), "")
		expect("in the metadata", who, err, "alice")
		who, err = whoami(conn, ctx, "")
		expect("the connection remembers", who, err, "alice")
		who, err = whoami(conn, with("bearer "+issue("alice")), "")
		expect("another token of hers", who, err, "alice")
		_, err = whoami(conn, with("Bearer "+issue("bob")), "")
		expect("another's, over her connection", "", err, "")
		_, err = whoami(conn, ctx, issue("bob"))
		expect("another's, by a call", "", err, "")
		_, err = whoami(conn, with("Basic YWxpY2U6"), "")
		expect("another scheme", "", err, "")
		_, err = whoami(conn, metadata.AppendToOutgoingContext(with("Bearer "+alice), "authorization", "Bearer "+issue("bob")), "")
		expect("two", "", err, "")
		who, err = whoami(conn, ctx, "")
		expect("after all that", who, err, "alice")
		conn = over(certs.Files{CA: c.clients.file})
		_, err = whoami(conn, ctx, "")
		expect("nothing shown", "", err, "")
		if _, err := pb.NewCellClient(conn).Locate(ctx, &pb.LocateRequest{}); !errors.Is(pb.Error(err), api.Unauthenticated) {
			t.Errorf("it is answered before anybody is named: %v", err)
		}
		who, err = whoami(conn, ctx, issue("bob"))
		expect("by a call", who, err, "bob")
		conn = over(certs.Files{CA: c.clients.file})
		_, err = whoami(conn, ctx, "x")
		expect("a bad one", "", err, "")
		_, err = whoami(conn, ctx, issue("bob"))
		expect("a good one after a bad one", "", err, "")
		conn = over(certs.Files{CA: c.clients.file})
		_, err = whoami(conn, ctx, issue("@operators"))
		expect("a name with another sense", "", err, "")
		conn = over(c.clients.client("carol"))
		who, err = whoami(conn, ctx, "")
		expect("by a certificate", who, err, "carol")
		_, err = whoami(conn, with("Bearer "+alice), "")
		expect("a token over a connection with a certificate", "", err, "")
		_, err = whoami(conn, ctx, issue("carol"))
		expect("a token of the same name there", "", err, "")

		l := c.link(t, ctx, certs.Files{CA: c.clients.file})
		select {
		case <-l.Left():
		case <-time.After(6 * time.Second):
			t.Error("it stays")
		}
		l = c.link(t, ctx, certs.Files{CA: c.clients.file})
		time.Sleep(4 * time.Second)
		must(pb.NewCellClient(l).Authenticate(ctx, &pb.AuthenticateRequest{Token: alice}))(t)
		select {
		case <-l.Left():
			t.Error("it is closed, and names alice")
		case <-time.After(6 * time.Second):
		}
	})
}

// Tokens are configured completely, and over TLS, or not at all.
func TestTokensNeedTLS(t *testing.T) {
	for name, c := range map[string]struct {
		tokens cell.TokenConfig
		want   string
	}{
		"no TLS":              {cell.TokenConfig{Keys: "k", Issuer: "i", Audience: "a"}, "tokens need TLS"},
		"no keys":             {cell.TokenConfig{Issuer: "i", Audience: "a"}, "token-keys: is missing"},
		"no issuer":           {cell.TokenConfig{Keys: "k", Audience: "a"}, "token-issuer: is missing"},
		"no audience":         {cell.TokenConfig{Keys: "k", Issuer: "i"}, "token-audience: is missing"},
		"a URL without TLS":   {cell.TokenConfig{Keys: "http://h/k", Issuer: "i", Audience: "a"}, "no URL of https"},
		"a file with a token": {cell.TokenConfig{Keys: "k", KeysToken: "t", Issuer: "i", Audience: "a"}, "are for a URL"},
	} {
		cfg := cell.Config{Cell: "local", ID: "r1", Data: t.TempDir(), Members: []cell.Member{{ID: "r1", Client: "h:1", Raft: "h:2"}}, Tokens: c.tokens}
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

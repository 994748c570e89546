//go:build linux

package resolver_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/client/recipe"
	"github.com/chubbylock/chubby/client/recipe/resolver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers are gRPC servers in memory, by address. Each answers with its own.
type servers map[string]*bufconn.Listener

func serve(t *testing.T, list ...string) servers {
	all := servers{}
	for _, address := range list {
		l := bufconn.Listen(1 << 16)
		s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			_ = grpc.SetHeader(ctx, metadata.Pairs("server", address))
			return next(ctx, q)
		}))
		healthpb.RegisterHealthServer(s, health.NewServer())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(l)
		}()
		t.Cleanup(func() { s.Stop(); <-done })
		all[address] = l
	}
	return all
}

func (s servers) dial(ctx context.Context, address string) (net.Conn, error) {
	l := s[address]
	if l == nil {
		return nil, errors.New("no such server")
	}
	return l.DialContext(ctx)
}

// world is a cell, some servers, and a connection by name.
type world struct {
	*celltest.Cell
	t       *testing.T
	ctx     context.Context
	servers servers
	conn    *grpc.ClientConn
}

func inWorld(t *testing.T, replicas int, target string, test func(w *world)) {
	t.Helper()
	celltest.Run(t, replicas, func(t *testing.T, cell *celltest.Cell) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := &world{Cell: cell, t: t, ctx: ctx, servers: serve(t, "one:1", "two:2")}
		w.conn = w.connect(target, cell.ConfigOf("caller"))
		defer w.conn.Close()
		test(w)
	})
}

func (w *world) connect(target string, from client.Sessions) *grpc.ClientConn {
	w.t.Helper()
	return ok(grpc.NewClient(target, grpc.WithResolvers(resolver.New(from)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.servers.dial), grpc.WithNoProxy(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`)))(w.t)
}

// publish publishes an endpoint in a session of its own.
func (w *world) publish(address string) (*client.Client, *recipe.Publication) {
	w.t.Helper()
	c := w.Client(address)
	return c, ok(recipe.Publish(w.ctx, c, "/ls/local/svc", recipe.Endpoint{Address: address}))(w.t)
}

// answers returns who answers ten calls, in the order of the alphabet, and the code of those that fail.
func (w *world) answers() string {
	w.t.Helper()
	time.Sleep(time.Second)
	seen := map[string]bool{}
	for range 10 {
		var header metadata.MD
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
		_, err := healthpb.NewHealthClient(w.conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header))
		cancel()
		if err != nil {
			seen[status.Code(err).String()] = true
			continue
		}
		seen[strings.Join(header.Get("server"), "+")] = true
	}
	var words []string
	for _, word := range []string{"one:1", "two:2", codes.Unavailable.String(), codes.DeadlineExceeded.String()} {
		if seen[word] {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func (w *world) expect(what, want string) {
	w.t.Helper()
	if got := w.answers(); got != want {
		w.t.Errorf("%s: %q answered, want %q", what, got, want)
	}
}

// Calls go to the servers that are published, through fail-overs, the absence of the cell, and the loss of
// sessions, the resolver's and the servers'.
func TestResolver(t *testing.T) {
	inWorld(t, 3, "chubby:///ls/local/svc", func(w *world) {
		one, _ := w.publish("one:1")
		w.expect("one server", "one:1")
		_, second := w.publish("two:2")
		w.expect("two servers", "one:1 two:2")
		w.Restart(w.FailOver())
		w.expect("after a fail-over", "one:1 two:2")
		must(t, second.Withdraw(w.ctx))
		w.expect("one has withdrawn", "one:1")
		w.Cut("caller")
		_, second = w.publish("two:2")
		time.Sleep(5 * time.Minute)
		w.expect("the cell is away", "one:1")
		w.Heal("caller")
		time.Sleep(30 * time.Second)
		w.expect("it is back, and the session is another", "one:1 two:2")
		w.Expire(one.Session())
		w.expect("a server's session is over", "two:2")
		must(t, second.Withdraw(w.ctx))
		w.expect("no server", "Unavailable")
		w.publish("one:1")
		w.expect("a server", "one:1")
	})
}

// The target may be the file of an election: then calls go to the primary.
func TestResolverOfPrimary(t *testing.T) {
	inWorld(t, 1, "chubby:///ls/local/primary", func(w *world) {
		for _, name := range []string{"one:1", "two:2"} {
			p := ok(recipe.Campaign(w.ctx, w.Client(name), "/ls/local/primary", recipe.CampaignOptions{LockDelay: recipe.NoLockDelay, Value: []byte(name)}))(t)
			w.expect("a primary", name)
			must(t, p.Resign(w.ctx))
		}
	})
}

// A call does not wait for a cell that does not answer for longer than Patience, and works once it does.
func TestResolverWithoutCell(t *testing.T) {
	inWorld(t, 1, "chubby:///ls/local/svc", func(w *world) {
		w.publish("one:1")
		w.Cut("caller")
		began := time.Now()
		_, err := healthpb.NewHealthClient(w.conn).Check(w.ctx, &healthpb.HealthCheckRequest{})
		if took := time.Since(began); status.Code(err) != codes.Unavailable || took < resolver.Patience || took > 2*resolver.Patience {
			t.Errorf("after %v: %v", took, err)
		}
		w.Heal("caller")
		time.Sleep(30 * time.Second)
		w.expect("the cell is there", "one:1")
	})
}

// Connections over a Keeper share one session, and find the servers again in the next when it is lost.
func TestResolverOverAKeeper(t *testing.T) {
	inWorld(t, 1, "chubby:///ls/local/svc", func(w *world) {
		k := w.Keep("kept")
		_, one := w.publish("one:1")
		first := w.conn
		defer func() { w.conn = first }()
		for range 3 {
			w.conn = w.connect("chubby:///ls/local/svc", k)
			defer w.conn.Close()
			w.expect("a connection", "one:1")
		}
		var id api.SessionID
		if err := k.Do(w.ctx, func(c *client.Client) error {
			id = c.Session()
			list, err := c.Cell().Sessions(w.ctx)
			kept := 0
			for _, s := range list {
				if s.Principal == "kept" {
					kept++
				}
			}
			if kept != 1 {
				t.Errorf("%d sessions of three connections", kept)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		w.Expire(id)
		w.publish("two:2")
		must(t, one.Withdraw(w.ctx))
		time.Sleep(30 * time.Second)
		w.expect("the session is another", "two:2")
	})
}

// What cannot be a target is refused before anything is asked.
func TestResolverRefuses(t *testing.T) {
	for _, target := range []string{"chubby://ls/local/svc", "chubby:///svc", "chubby:///ls/local/a//b"} {
		conn, err := grpc.NewClient(target, grpc.WithResolvers(resolver.New(client.Config{})), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err == nil {
			_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), api.InvalidPath.String()) {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ok returns what a call returns, and ends the test on its error.
func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

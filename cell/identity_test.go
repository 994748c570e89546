package cell_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/internal/certs"
)

// Who creates a session under the nonce of another principal's is not given that one's session.
func TestTLSBindsNonces(t *testing.T) {
	inTLSCell(t, func(t *testing.T, ctx context.Context, c tlsCell) {
		create := func(principal string) (*pb.CreateSessionReply, error) {
			reply, err := pb.NewChubbyClient(c.link(t, ctx, c.clients.client(principal))).CreateSession(ctx, &pb.CreateSessionRequest{Cell: "local", Nonce: []byte("0123456789abcdef")})
			return reply, pb.Error(err)
		}
		hers, err := create("alice")
		c.clients.check(err)
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

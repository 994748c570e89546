package client

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// A replica that is configured by another address than it names itself by is one
// replica: calls to a master that is only slow are not taken from it because it is
// found again by its other address.
func TestSlowMasterOfTwoAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fake) {
		cfg := f.config()
		cfg.Servers = []string{"also-a:1", "also-b:1", "also-c:1"}
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return f.dial(ctx, strings.TrimPrefix(address, "also-"))
		}
		c := f.client(cfg)
		h := lockable(t, c, 0)
		f.script(func(s seen) verb {
			if s.method == "SetContents" {
				return after(4 * time.Second)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.SetContents(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := h.SetContents(ctx, nil); err != nil || len(f.heard("SetContents")) > 4 {
			t.Errorf("%v; two writes were sent %d times", err, len(f.heard("SetContents")))
		}
		closeClient(t, c)
	})
}

// The newest list of a cell's replicas counts, whoever tells another one later: a replica that was taken out, one that is behind, or
// one that does not know of all.
func TestNewestListOfReplicasCounts(t *testing.T) {
	list := func(version uint64, servers ...string) *chubbypb.LocateReply {
		return &chubbypb.LocateReply{CellId: "c", Servers: servers, ServersVersion: version}
	}
	var many []string
	for i := range 2 * maxTold {
		many = append(many, fmt.Sprintf("s%d:1", i))
	}
	for _, c := range []struct {
		name string
		told []*chubbypb.LocateReply
		want []string
	}{
		{"never changed", []*chubbypb.LocateReply{list(0)}, nil},
		{"changed", []*chubbypb.LocateReply{list(2, "a:1", "b:1"), list(3, "b:1", "c:1")}, []string{"b:1", "c:1"}},
		{"an older one", []*chubbypb.LocateReply{list(3, "b:1", "c:1"), list(2, "a:1", "b:1"), list(0)}, []string{"b:1", "c:1"}},
		{"one without a version adds", []*chubbypb.LocateReply{list(3, "b:1", "c:1"), list(0, "c:1", "d:1")}, []string{"c:1", "d:1", "b:1"}},
		{"and is replaced", []*chubbypb.LocateReply{list(3, "b:1"), list(0, "d:1"), list(3, "b:1")}, []string{"b:1"}},
		{"of another cell", []*chubbypb.LocateReply{list(3, "b:1"), {CellId: "d", Servers: []string{"e:1"}, ServersVersion: 1}}, []string{"e:1"}},
		{"too many", []*chubbypb.LocateReply{list(1, many...)}, many[:maxTold]},
		{"too many without a version", []*chubbypb.LocateReply{list(0, many[:maxTold]...), list(0, many[maxTold:]...)}, many[maxTold:]},
	} {
		var servers serverList
		for _, reply := range c.told {
			servers.noteTold(reply)
		}
		if !slices.Equal(servers.told, c.want) {
			t.Errorf("%s: %v; want %v", c.name, servers.told, c.want)
		}
	}
}

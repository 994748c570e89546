package wire

import (
	"math"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"google.golang.org/protobuf/proto"
)

// The master bounds pages and replies by upper bounds of encoded sizes. The test encodes each with
// the largest numbers and with texts of some lengths: no encoding may exceed its bound.
func TestNothingIsLongerOnTheWire(t *testing.T) {
	for _, length := range []int{0, 1, 127, 128, 1024} {
		text := strings.Repeat("x", length)
		who := api.Holder{Session: math.MaxUint64, Principal: text, Host: text, PID: math.MaxInt, Reason: text, SinceUnix: math.MaxInt64, Cached: true, Checked: true, LockDelay: math.MaxInt64}
		event := &master.Event{
			Sequence: math.MaxUint64, Kind: math.MaxUint8, Handle: math.MaxUint64, Path: text, Child: text,
			Generation: math.MaxUint64, Reason: math.MaxUint8, Explanation: text,
		}
		lock := api.LockInfo{
			Path: text, Mode: math.MaxUint8, Generation: math.MaxUint64, Holders: []api.Holder{who, who}, MoreHolders: math.MaxInt,
			MoreWaiters: math.MaxInt, Delayed: math.MaxInt64, Revoked: text,
			Waiters: []api.Waiter{{Holder: who, Place: math.MaxInt, Mode: math.MaxUint8, Waiting: math.MaxInt64, Absent: true, Estimate: math.MaxInt64}},
		}
		session := api.SessionInfo{
			Holder: who, Lease: math.MaxInt64, LeftLeast: math.MaxInt64, LeftMost: math.MaxInt64, Handles: math.MaxInt, Locks: math.MaxInt, MayCache: true, Unheard: true,
		}
		most := api.Quota{Nodes: math.MaxInt, Bytes: math.MaxInt64, Sessions: math.MaxInt, Handles: math.MaxInt, Waiters: math.MaxInt}
		use := api.QuotaUse{Principal: text, Path: text, Used: most, Allowed: most}
		for name, one := range map[string]struct {
			estimate int
			message  proto.Message
		}{
			"an event":  {event.WireSize(), &pb.KeepAliveReply{Events: []*pb.Event{eventOf(event)}}},
			"a lock":    {master.LockBytes(lock), &pb.ListLocksReply{Locks: pb.Messages[pb.LockInfo]([]api.LockInfo{lock})}},
			"a session": {master.SessionBytes(session), &pb.ListSessionsReply{Sessions: pb.Messages[pb.SessionInfo]([]api.SessionInfo{session})}},
			"a quota":   {master.QuotaBytes(use), &pb.ListQuotasReply{Quotas: pb.Messages[pb.QuotaInfo]([]api.QuotaUse{use})}},
		} {
			if size := proto.Size(one.message); size > one.estimate {
				t.Errorf("%s with texts of %d bytes takes %d bytes on the wire, and is taken to have %d", name, length, size, one.estimate)
			}
		}
	}
}

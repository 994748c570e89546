package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/internal/master"
	"github.com/chubbylock/chubby/cell/internal/testbed"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// requestMessages returns the types of all messages that requests have within them.
func requestMessages(t *testing.T) map[protoreflect.FullName]protoreflect.MessageType {
	all := map[protoreflect.FullName]protoreflect.MessageType{}
	var add func(protoreflect.MessageDescriptor, []protoreflect.FullName)
	add = func(d protoreflect.MessageDescriptor, within []protoreflect.FullName) {
		for _, outer := range within {
			if outer == d.FullName() {
				t.Fatalf("%s is within itself: countParts has to bound how deep", d.FullName())
			}
		}
		found := testbed.Must(protoregistry.GlobalTypes.FindMessageByName(d.FullName()))(t)
		if len(within) > 0 {
			all[d.FullName()] = found
		}
		for i := range d.Fields().Len() {
			if inner := d.Fields().Get(i).Message(); inner != nil {
				add(inner, append(within, d.FullName()))
			}
		}
	}
	services := pb.File_chubby_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			add(services.Get(i).Methods().Get(j).Input(), nil)
		}
	}
	return all
}

// A part of a request takes at most partWeight: a message that is in a list, and the place in the list, which may have been made longer.
func TestPartsAreNotHeavier(t *testing.T) {
	for name, message := range requestMessages(t) {
		const place = 2 * 8
		if size := reflect.TypeOf(message.Zero().Interface()).Elem().Size(); size+place > partWeight {
			t.Errorf("%s takes %d bytes, and partWeight is %d", name, size+place, partWeight)
		}
	}
}

// Our requests are counted, and is far from the bound.
func TestPartsAreCounted(t *testing.T) {
	txn := &pb.TxnRequest{Caller: &pb.Caller{Session: make([]byte, 30), Epoch: 1}, Mutation: &pb.Mutation{Number: 1, HighestIssued: 300, Outstanding: make([]uint64, api.MaxOutstanding)}}
	for i := range txn.GetMutation().GetOutstanding() {
		txn.Mutation.Outstanding[i] = uint64(i + 40)
	}
	for range api.MaxTxnSteps {
		txn.Conditions = append(txn.Conditions, &pb.TxnCondition{Path: "/ls/local/a", Holds: &pb.TxnCondition_Exists{Exists: true}})
		txn.Operations = append(txn.Operations, &pb.TxnOperation{Action: pb.TxnAction_TXN_ACTION_PUT, Path: "/ls/local/a", Contents: []byte("a")})
	}
	number := func(n protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), 300)
	}
	text := func(n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), value)
	}
	encoded := func(m proto.Message) []byte {
		wire := testbed.Must(proto.Marshal(m))(t)
		return wire
	}
	for name, c := range map[string]struct {
		wire    []byte
		message proto.Message
		parts   int
		want    error
	}{
		"nothing":                 {nil, txn, 0, nil},
		"the longest of ours":     {encoded(txn), txn, 3 + (4 + api.MaxOutstanding) + api.MaxTxnSteps*(3+4), nil},
		"fields nobody knows":     {append(number(99), text(98, []byte("x"))...), txn, 2, nil},
		"texts in a list":         {bytes.Repeat(text(3, nil), 5), &pb.FinishUpgradeRequest{}, 5, nil},
		"empty steps":             {bytes.Repeat(text(3, nil), maxParts), txn, maxParts, nil},
		"one more":                {bytes.Repeat(text(3, nil), maxParts+1), txn, maxParts + 1, api.TooLarge},
		"numbers in a list":       {text(2, text(3, make([]byte, 3000))), txn, 3002, api.TooLarge},
		"within":                  {text(3, bytes.Repeat(number(2), 3000)), txn, 1026, api.TooLarge},
		"a group":                 {protowire.AppendTag(nil, 3, protowire.StartGroupType), txn, 0, api.InvalidArgument},
		"what is cut":             {text(3, []byte("x"))[:2], txn, 0, api.InvalidArgument},
		"what is cut within":      {text(3, []byte{10}), txn, 1, api.InvalidArgument},
		"a number without an end": {bytes.Repeat([]byte{0xff}, 20), txn, 0, api.InvalidArgument},
	} {
		size, err := sizeOf(c.wire, c.message.ProtoReflect().Descriptor())
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) || size.bytes != len(c.wire) {
			t.Errorf("%s: %v of %d bytes, %v", name, size, len(c.wire), err)
		}
		if err == nil && size.parts != c.parts || size.parts > c.parts {
			t.Errorf("%s: %d parts, want %d", name, size.parts, c.parts)
		}
	}
}

// No request that can be decoded is called malformed, unless it has a group.
func FuzzParts(f *testing.F) {
	for _, m := range []proto.Message{&pb.TxnRequest{Conditions: []*pb.TxnCondition{{Path: "a"}}}, &pb.RestoreRequest{Begin: &pb.RestoreBegin{Cell: "a"}}} {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		for _, m := range []proto.Message{&pb.TxnRequest{}, &pb.RestoreRequest{}, &pb.OpenRequest{}} {
			size, err := sizeOf(wire, m.ProtoReflect().Descriptor())
			if decoded := proto.Unmarshal(wire, m); decoded == nil && err != nil && size.parts <= maxParts && !bytes.Contains([]byte(err.Error()), []byte("group")) {
				t.Errorf("%x can be decoded: %v", wire, err)
			}
		}
	})
}

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

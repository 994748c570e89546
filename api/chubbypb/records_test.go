package chubbypb_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/misuse"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// crosses has a record cross the wire with a value in every field, and checks that all arrive, and that no field of the message
// stays empty but those named.
func crosses[R, M any](t *testing.T, empty ...string) {
	t.Helper()
	var sent, want R
	fill(reflect.ValueOf(&sent).Elem(), 0)
	m := chubbypb.Message[M](sent)
	got := chubbypb.Record[R](m)
	want = sent
	for i := range reflect.TypeFor[R]().NumField() { // what is not in the message
		if reflect.TypeFor[R]().Field(i).Tag.Get("pb") == "-" {
			reflect.ValueOf(&want).Elem().Field(i).SetZero()
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%T arrived as %+v, want %+v", sent, got, want)
	}
	if again := chubbypb.Records[R](chubbypb.Messages[M]([]R{sent, *new(R), sent})); len(again) != 3 || !reflect.DeepEqual(again[2], want) {
		t.Errorf("%d of three %T arrived: %+v", len(again), sent, again)
	}
	if none := chubbypb.Record[R]((*M)(nil)); !reflect.DeepEqual(none, *new(R)) {
		t.Errorf("no message arrived as %+v", none)
	}
	message := reflect.ValueOf(m).Elem()
	for i := range message.NumField() {
		field := message.Type().Field(i)
		if listed := len(empty) > 0 && field.Name == empty[0]; field.IsExported() && message.Field(i).IsZero() != listed {
			t.Errorf("%s of %T is empty: %v; has the record a field of that name?", field.Name, m, message.Field(i).IsZero())
		} else if listed {
			empty = empty[1:]
		}
	}
}

// fill sets every field to a value of its own, as far as there are enough small ones.
func fill(v reflect.Value, n int) {
	switch n++; {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n+i)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n+1)
	case v.Kind() == reflect.Map:
		v.Set(reflect.ValueOf(map[string]uint64{"a": uint64(n), "b": 7}))
	case v.Kind() == reflect.Interface: // an error
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(uint8(32 + n)).Convert(v.Type()))
	}
}

func TestRecordsCrossTheWire(t *testing.T) {
	crosses[api.LockInfo, chubbypb.LockInfo](t)
	crosses[api.Waiter, chubbypb.Waiter](t)
	crosses[api.SessionInfo, chubbypb.SessionInfo](t)
	crosses[api.Explanation, chubbypb.ExplainReply](t)
	crosses[api.QuotaUse, chubbypb.QuotaInfo](t)
	crosses[api.Overview, chubbypb.OverviewReply](t)
	crosses[api.Status, chubbypb.StatusReply](t, "Replica")
	crosses[api.ReplicaStatus, chubbypb.ReplicaStatus](t)
	crosses[api.Member, chubbypb.Member](t)
	crosses[api.Upgrade, chubbypb.FinishUpgradeReply](t)
	crosses[misuse.Report, chubbypb.LintReply](t)
	crosses[misuse.Options, chubbypb.LintRequest](t, "Cell")
	crosses[api.Holder, chubbypb.Party](t)

	var sent api.History
	fill(reflect.ValueOf(&sent).Elem(), 0)
	sent.Path = ""
	if got := chubbypb.NewHistory(sent).History(); !reflect.DeepEqual(got, sent) {
		t.Errorf("%+v arrived as %+v", sent, got)
	}
}

// The kinds of events of the protocol are those of the vocabulary.
func TestEventKinds(t *testing.T) {
	for number, name := range chubbypb.EventKind_name {
		if kind := api.EventKind(number); number != 0 && !kind.Known() {
			t.Errorf("%s (%d) has no row in the table of api/event.go", name, number)
		}
	}
	for _, kind := range api.EventKinds() {
		if chubbypb.EventKind_name[int32(kind)] == "" {
			t.Errorf("%v (%d) is not in chubby.proto", kind, kind)
		}
	}
}

// Clients that are generated have each method under its name in camel case. One that is named as a method that all of them
// have hides that, or is hidden: a client of grpc-js with a method "close" cannot be closed.
func TestMethodsHideNothing(t *testing.T) {
	taken := map[string][]string{
		"grpc-js":   {"close", "getChannel", "waitForReady", "makeUnaryRequest", "makeClientStreamRequest", "makeServerStreamRequest", "makeBidiStreamRequest"},
		"grpc-java": {"build", "getCallOptions", "getChannel", "getClass", "hashCode", "notify", "notifyAll", "toString", "wait"},
		"grpc-dart": {"$createCall", "$createStreamingCall", "$createUnaryCall"},
		"grpc-net":  {"equals", "getHashCode", "getType", "newInstance", "toString", "withHost"},
	}
	services := chubbypb.File_chubby_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for k := range methods.Len() {
			name := string(methods.Get(k).Name())
			camel := strings.ToLower(name[:1]) + name[1:]
			for library, names := range taken {
				if slices.Contains(names, camel) {
					t.Errorf("%s is %s in %s, as a method of every client is: choose another name", methods.Get(k).FullName(), camel, library)
				}
			}
		}
	}
}

// Every code, with everything an error can carry, arrives as it was sent, also
// when it was wrapped on the way.
func TestErrorsCrossTheWire(t *testing.T) {
	for _, code := range api.Codes() {
		sent := &api.Error{
			Code: code, Op: "acquire", Path: "/ls/foo/lock", Replica: "r2", Master: "h1:7421", Cell: "foo", Message: "held; wait",
			Holders:   []api.Holder{{Session: 7, Principal: "alice", Host: "h", PID: 12, Reason: "backup", SinceUnix: 99}},
			Remaining: 3 * time.Second, Current: 41,
		}
		got := chubbypb.Error(chubbypb.Status(fmt.Errorf("while serving: %w", sent)))
		if !reflect.DeepEqual(got, error(sent)) {
			t.Errorf("%v arrived as %#v", code, got)
		}
		if !errors.Is(got, code) {
			t.Errorf("errors.Is does not find %v", code)
		}
		if s := status.Code(chubbypb.Status(sent)); s == codes.Unknown || s == codes.OK {
			t.Errorf("%v travels as gRPC's %v", code, s)
		}
	}
}

// Errors that are not Chubby's keep what can be concluded from them.
func TestForeignErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want api.Code
	}{
		{nil, api.OK},
		{context.Canceled, api.Cancelled},
		{context.DeadlineExceeded, api.DeadlineExceeded},
		{status.Error(codes.Unavailable, "connection refused"), api.Unavailable},
		{status.Error(codes.Internal, "?"), api.Uncertain},
		{errors.New("?"), api.Uncertain},
	} {
		if got := api.CodeOf(chubbypb.Error(c.err)); got != c.want {
			t.Errorf("Error(%v) is %v, want %v", c.err, got, c.want)
		}
		if c.err != nil && status.Code(c.err) == codes.Unknown {
			if got := api.CodeOf(chubbypb.Error(chubbypb.Status(c.err))); got != c.want {
				t.Errorf("Status(%v) arrives as %v, want %v", c.err, got, c.want)
			}
		}
	}
}

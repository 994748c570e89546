package chubbypb_test

import (
	"reflect"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/misuse"
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

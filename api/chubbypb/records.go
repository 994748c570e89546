package chubbypb

import (
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/chubbylock/chubby/api"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message returns the message of a record. A field of the record belongs to the one of the message that has the same name, but
// for capitals and the Ns of times, or the name that its tag pb gives. The fields that one of the two lacks are left as they are.
func Message[M any](record any) *M {
	m := new(M)
	assign(reflect.ValueOf(m).Elem(), reflect.ValueOf(record))
	return m
}

// Messages returns the messages of several records.
func Messages[M, R any](records []R) (list []*M) {
	assign(reflect.ValueOf(&list).Elem(), reflect.ValueOf(records))
	return list
}

// Record is the opposite of Message. That of a nil message is the zero record.
func Record[R any](m any) (record R) {
	assign(reflect.ValueOf(&record).Elem(), reflect.ValueOf(m))
	return record
}

// Records is the opposite of Messages.
func Records[R, M any](messages []*M) (list []R) {
	assign(reflect.ValueOf(&list).Elem(), reflect.ValueOf(messages))
	return list
}

// assign sets what belongs to a record to what belongs to its message, or the other way.
func assign(to, from reflect.Value) {
	switch {
	case from.Kind() == reflect.Pointer && from.IsNil(), from.Kind() == reflect.Slice && from.Len() == 0:
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		assign(to.Elem(), from)
	case from.Kind() == reflect.Pointer:
		assign(to, from.Elem())
	case to.Kind() == reflect.Struct:
		for _, pair := range pairsOf(to.Type(), from.Type()) {
			assign(to.Field(pair[0]), from.Field(pair[1]))
		}
	case to.Kind() == reflect.Slice:
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			assign(to.Index(i), from.Index(i))
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
}

// pairs has what pairsOf has found, by both types.
var pairs sync.Map

// pairsOf returns the indices of the fields of two types that belong together.
func pairsOf(to, from reflect.Type) [][2]int {
	types := [2]reflect.Type{to, from}
	if known, ok := pairs.Load(types); ok {
		return known.([][2]int)
	}
	var list [][2]int
	for i := range to.NumField() {
		for k := range from.NumField() {
			if name := partner(to.Field(i)); name != "" && name == partner(from.Field(k)) {
				list = append(list, [2]int{i, k})
			}
		}
	}
	pairs.Store(types, list)
	return list
}

// partner returns the name by which a field is found; "" if it has no other.
func partner(f reflect.StructField) string {
	name, named := f.Tag.Lookup("pb")
	switch {
	case !f.IsExported() || name == "-":
		return ""
	case !named && f.Type == reflect.TypeFor[time.Duration]():
		name = f.Name + "Ns"
	case !named:
		name = f.Name
	}
	return strings.ToLower(name)
}

// NewHistory returns the message of a history.
func NewHistory(h api.History) *HistoryReply {
	reply := &HistoryReply{MoreHolders: uint32(h.MoreHolders)}
	for _, one := range h.Holdings {
		m := Message[Holding](one)
		m.Party, m.LockDelayNs = NewParty(one.Holder()), int64(one.Delay)
		reply.Holdings = append(reply.Holdings, m)
	}
	return reply
}

// History is the opposite of NewHistory.
func (r *HistoryReply) History() api.History {
	h := api.History{MoreHolders: int(r.GetMoreHolders())}
	for _, one := range r.GetHoldings() {
		who, held := one.GetParty().Holder(), Record[api.Holding](one)
		held.Session, held.Principal, held.Host, held.PID = who.Session, who.Principal, who.Host, who.PID
		held.Reason, held.FromUnix, held.Delay = who.Reason, who.SinceUnix, time.Duration(one.GetLockDelayNs())
		h.Holdings = append(h.Holdings, held)
	}
	return h
}

// FormerName returns the full name that v0.1.0 has for a method which has another name today, given in full; "" for all
// other methods. Masters serve it by both names. The library calls it by its former name, which masters of v0.1.0 serve,
// too, until no cell of that version is upgraded to the next one.
func FormerName(method string) string {
	if method == Chubby_CloseHandle_FullMethodName {
		return "/" + Chubby_ServiceDesc.ServiceName + "/Close"
	}
	return ""
}

// NotUTF8 returns the name of a field of a message whose text is not UTF-8; "" if
// there is none. gRPC cannot write a message with such a field.
func NotUTF8(message any) (field string) {
	if m, ok := message.(proto.Message); ok {
		return notUTF8(m.ProtoReflect())
	}
	return ""
}

func notUTF8(m protoreflect.Message) (field string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() || f.IsMap(): // no request has a list of texts
		case f.Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()):
			field = f.TextName()
		case f.Kind() == protoreflect.MessageKind:
			field = notUTF8(v.Message())
		}
		return field == ""
	})
	return field
}

// Word names what an operation of a transaction does, for people: "create".
func (a TxnAction) Word() string {
	return strings.ToLower(strings.TrimPrefix(a.String(), "TXN_ACTION_"))
}

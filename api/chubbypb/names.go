package chubbypb

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

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

package chubbypb_test

import (
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/api/chubbypb"
)

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

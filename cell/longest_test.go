package cell

import (
	"testing"

	"github.com/hashicorp/raft"
)

// Who succeeds a dead master has the longest log, and none shorter than that of who asks.
func TestLongestLogSucceeds(t *testing.T) {
	end := func(id string, last uint64) logEnd { return logEnd{of: raft.Server{ID: raft.ServerID(id)}, last: last} }
	for _, c := range []struct {
		name string
		own  uint64
		ends []logEnd
		want string // empty: nobody
	}{
		{"equal", 7, []logEnd{end("a", 7)}, "a"},
		{"longer first", 7, []logEnd{end("a", 9), end("b", 8)}, "a"},
		{"longer last", 7, []logEnd{end("a", 7), end("b", 8)}, "b"},
		{"all shorter", 7, []logEnd{end("a", 6), end("b", 0)}, ""},
		{"nobody answers", 0, nil, ""},
	} {
		if got, ok := longest(c.own, c.ends); string(got.ID) != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.name, got.ID, ok, c.want)
		}
	}
}

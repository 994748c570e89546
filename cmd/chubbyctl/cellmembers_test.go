package main

import (
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/client"
)

// A change of the replicas says each step once, and what a step waits for when it takes long, every few seconds.
func TestMemberProgress(t *testing.T) {
	var out strings.Builder
	var now []client.Member
	var passed time.Duration
	progress := memberProgress(&out, &now, func() time.Duration { return passed })
	for _, c := range []struct {
		after time.Duration
		one   client.Member
		want  string
	}{
		{0, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, "chubbyctl: r6 catches up\n"},
		{4 * time.Second, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, ""},
		{time.Second, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, "chubbyctl: r6 waits: it does not answer\n"},
		{time.Second, client.Member{ID: "r6", Phase: "joining", Waits: "it does not answer"}, ""},
		{9 * time.Second, client.Member{ID: "r6", Phase: "joining"}, ""},
		{0, client.Member{ID: "r6", Phase: "joining", Voter: true}, "chubbyctl: r6 has a vote\n"},
		{time.Second, client.Member{ID: "r6", Voter: true}, ""},
	} {
		passed += c.after
		out.Reset()
		if progress([]client.Member{c.one}); out.String() != c.want || len(now) != 1 || now[0] != c.one {
			t.Errorf("after %v, %+v: %q, want %q", passed, c.one, out.String(), c.want)
		}
	}
}

func TestPrintMembers(t *testing.T) {
	g := &globals{}
	var out strings.Builder
	list := []client.Member{{ID: "r1", Voter: true}, {ID: "r6", Phase: "joining", Waits: "it does not answer"}}
	if err := g.printMembers(&out, list); err != nil || !strings.HasSuffix(out.String(), "\nr6 is joining, and waits: it does not answer\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

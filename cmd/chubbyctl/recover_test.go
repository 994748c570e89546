package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/recovery"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// What a replica has that was removed is old: a backup is made of it only for who says that he knows, and it is said at every look.
func TestRecoverFromARemovedReplica(t *testing.T) {
	member := recovery.Directory{Path: "copies/r1", Cell: "foo", Replica: "r1", Replicas: []string{"r1", "r2"}}
	gone := recovery.Directory{Path: "copies/r3", Cell: "foo", Replica: "r3", Replicas: []string{"r1", "r2"}, Removed: true}
	for _, c := range []struct {
		of      recovery.Directory
		asked   bool
		refused bool
	}{{member, false, false}, {member, true, false}, {gone, true, false}, {gone, false, true}} {
		err := mustBeCurrent(c.of, c.asked)
		if (err != nil) != c.refused || c.refused && (api.CodeOf(err) != api.InvalidArgument || !strings.Contains(err.Error(), "(r1, r2)") || !strings.Contains(err.Error(), "--from-removed")) {
			t.Errorf("%+v, asked for: %v: %v", c.of, c.asked, err)
		}
	}
	var out, remarks bytes.Buffer
	g := &globals{output: "text", stderr: term.NewSpeaker(&remarks)}
	if err := g.printSurvivors(&out, []recovery.Directory{gone, member}); err != nil || !strings.Contains(out.String(), "freshest, removed") {
		t.Errorf("%v: %s", err, &out)
	}
	other := member
	other.Replica = "r2"
	for _, c := range []struct {
		list []recovery.Directory
		want string
	}{
		{[]recovery.Directory{gone}, "what it has ends there; look for the directories of r1, r2\n"},
		{[]recovery.Directory{gone, member}, "what it has ends there; look for the directories of r2\n"},
		{[]recovery.Directory{gone, member, other}, "what it has ends there; leave it out\n"},
	} {
		remarks.Reset()
		g.stderr = term.NewSpeaker(&remarks)
		g.adviseRecovery(c.list)
		g.stderr.Finish(false)
		if !strings.Contains(remarks.String(), "r3 was removed from cell foo: "+c.want) {
			t.Errorf("%+v: %s", c.list, &remarks)
		}
	}
}

package raftfsm_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/raftfsm"
)

// Entries and snapshots of a newer version, and those from before the first release, are
// distinguished from damaged ones.
func TestFormatsOfOtherVersions(t *testing.T) {
	c := newCell(t)
	entry, err := raftfsm.Entry{Epoch: 1, Wall: 1}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := c.state.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	rest, ok := strings.CutPrefix(b.String(), "chubby snapshot 2\n")
	if !ok || entry[0] != 1 {
		t.Fatalf("an entry begins with %d, a snapshot with %.20q: formats of released versions must be readable", entry[0], b.String())
	}
	readEntry := func(data string) error { _, err := raftfsm.DecodeEntry([]byte(data)); return err }
	readState := func(data string) error {
		_, err := raftfsm.ReadState(strings.NewReader(data), raftfsm.MaxLevel)
		return err
	}
	for name, one := range map[string]struct{ got, want error }{
		"an entry":                   {readEntry(string(entry)), nil},
		"a newer entry":              {readEntry("\x02" + string(entry[1:])), raftfsm.ErrNewer},
		"an unreleased entry":        {readEntry(string(entry[1:])), raftfsm.ErrUnreleased},
		"an empty entry":             {readEntry(""), api.Corrupt},
		"an entry of zeros":          {readEntry("\x00\x00"), api.Corrupt},
		"an entry without commands":  {readEntry("\x01"), api.Corrupt},
		"a snapshot":                 {readState("chubby snapshot 2\n" + rest), nil},
		"a newer snapshot":           {readState("chubby snapshot 3\n" + rest), raftfsm.ErrNewer},
		"a much newer snapshot":      {readState("chubby snapshot 17\n" + rest), raftfsm.ErrNewer},
		"an unreleased snapshot":     {readState("chubby snapshot 1\n" + rest), raftfsm.ErrUnreleased},
		"a snapshot of no format":    {readState("chubby snapshot 0\n" + rest), api.Corrupt},
		"a snapshot of words":        {readState("chubby snapshot x\n" + rest), api.Corrupt},
		"a file of something else":   {readState("something else altogether"), api.Corrupt},
		"a snapshot that is cut off": {readState("chubby snap"), api.Corrupt},
	} {
		if one.want == nil && one.got != nil || one.want != nil && !errors.Is(one.got, api.Corrupt) {
			t.Errorf("%s: %v, want %v", name, one.got, one.want)
		}
		for _, which := range []error{raftfsm.ErrNewer, raftfsm.ErrUnreleased} {
			if errors.Is(one.got, which) != errors.Is(one.want, which) {
				t.Errorf("%s: %v, want %v", name, one.got, one.want)
			}
		}
	}
}

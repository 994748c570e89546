package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
	"github.com/chubbylock/chubby/cmd/chubbyctl/internal/term"
)

// topExample is a look at a cell in trouble.
func topExample(passed time.Duration, calls uint64) topLook {
	holder := api.Holder{Session: 7, Principal: "ann", Host: "web1", PID: 4711, SinceUnix: 1}
	waiter := api.Holder{Session: 8, Principal: "bob", Host: "web2", PID: 4712}
	return topLook{
		clock: func() time.Duration { return passed },
		status: client.Status{
			Cell: "foo", Master: "r2", Sessions: 12, Nodes: 34, Locks: 5,
			Replicas: []client.ReplicaStatus{{ID: "r1", Healthy: true}, {ID: "r2", Healthy: true}, {ID: "r3"}},
		},
		overview: api.Overview{
			Epoch: 9, Whole: true, Backlog: api.Backlog{Waiters: 3, Changes: 1}, Counts: map[string]uint64{"calls": calls},
			Waits: []client.LockInfo{{
				Path: "/ls/foo/a/very/long/path/of/a/service/that/has/a/primary", Holders: []api.Holder{holder}, MoreHolders: 2,
				Waiters: []client.Waiter{{Holder: waiter, Waiting: 65 * time.Second}, {Holder: holder, Waiting: time.Second}}, MoreWaiters: 1,
			}},
			Holdups:   []api.Holdup{{Path: "/ls/foo/config", Waiting: 4 * time.Second, Slow: []api.Holder{waiter}, MoreSlow: 2}},
			MoreWaits: 4,
		},
	}
}

func TestTopScreen(t *testing.T) {
	before, now := topExample(2*time.Second, 100), topExample(0, 300)
	rates := now.rates(&before)
	if rates["calls"] != 100 {
		t.Errorf("200 calls in 2 s are %v a second", rates["calls"])
	}
	for _, width := range []int{0, 80} {
		b := term.Text.NewPage(term.Style{Width: width})
		drawTop(b, &now, rates)
		for _, want := range []string{
			"cell foo: master r2, epoch 9, 2 of 3 replicas well", "sessions 12, nodes 34, locks 5\n", "waiting: requests for locks 3, changes 1, locks in a lock-delay 0\n",
			"a second: 100 calls", "primary", "1m", "and 4 more locks", "/ls/foo/config", "4s", "session s8, bob",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%d columns: no %q in\n%s", width, want, b.String())
			}
		}
		for line := range strings.Lines(b.String()) {
			if width > 0 && len([]rune(strings.TrimRight(line, "\n"))) > width && !strings.Contains(line, "second") {
				t.Errorf("a line of more than %d columns: %q", width, line)
			}
		}
	}
}

// Nothing is compared with what another master counted, nor with nothing.
func TestTopRatesAreOfOneMaster(t *testing.T) {
	now, before := topExample(0, 300), topExample(time.Second, 100)
	before.overview.Epoch--
	for name, old := range map[string]topLook{"nothing": {}, "another epoch": before} {
		if rates := now.rates(&old); rates != nil {
			t.Errorf("compared with %s: %v", name, rates)
		}
	}
}

func TestTopFields(t *testing.T) {
	look := topExample(0, 1)
	text, err := json.Marshal(topFields(&look, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"healthy":2`, `"sessions":12`, `"backlog":{"waiters":3`, `"per_s":null`, `"waiting_s":65`, `"holdups":[{"path":"/ls/foo/config","waiting_s":4,"slow":[{"session":"s8"`, `"more_slow":2`, `"more_waits":4`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	look.overview.Whole, look.status.Master = false, ""
	if text, _ = json.Marshal(topFields(&look, nil)); !strings.Contains(string(text), `"backlog":null`) || !strings.Contains(string(text), `"sessions":null`) {
		t.Errorf("what is not known: %s", text)
	}
}

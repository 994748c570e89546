package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/client"
)

// A difference is reported only of replicas that have applied the same entries.
func TestDivergence(t *testing.T) {
	a := client.ReplicaStatus{ID: "r1", Applied: 7, StateHash: "aaaaaaaaaaaa"}
	b := client.ReplicaStatus{ID: "r2", Applied: 7, StateHash: "bbbbbbbbbbbb"}
	if fault := divergence([]client.ReplicaStatus{a, b}); !strings.Contains(fault, "r1 and r2") {
		t.Errorf("not noticed: %q", fault)
	} else if !strings.Contains(fault, "stop all replicas") {
		t.Errorf("one of two that differ is to be stopped: %q", fault)
	}
	like := a
	like.ID = "r3"
	if fault := divergence([]client.ReplicaStatus{b, a, like}); !strings.Contains(fault, "Stop r2,") {
		t.Errorf("the one that differs from two of three is to be stopped: %q", fault)
	}
	b.Applied = 8
	c := client.ReplicaStatus{ID: "r3", Applied: 7, Err: errors.New("refused")}
	if fault := divergence([]client.ReplicaStatus{a, b, c}); fault != "" {
		t.Errorf("alarm for nothing: %s", fault)
	}
}

// Programs are told that replicas differ, too.
func TestDivergenceAsJSON(t *testing.T) {
	var b bytes.Buffer
	g := &globals{output: "json"}
	if err := g.printStatus(&b, client.Status{Cell: "foo", Master: "r1"}, "r1 and r2 differ"); err != nil || !strings.Contains(b.String(), `"divergence":"r1 and r2 differ"`) {
		t.Errorf("%v: %s", err, b.String())
	}
}

// Right after a start all replicas answer and none is the master yet: there is nothing to start or to reach. If it stays so though a majority answers, they do not
// reach each other.
func TestExplainNoMaster(t *testing.T) {
	up, silent := client.ReplicaStatus{ID: "r1"}, client.ReplicaStatus{ID: "r2", Err: errors.New("refused")}
	for _, c := range []struct {
		replicas []client.ReplicaStatus
		want     string
	}{
		{[]client.ReplicaStatus{up, up, up}, "ask again"},
		{[]client.ReplicaStatus{up, up, silent}, "do not reach each other"},
		{[]client.ReplicaStatus{up, silent, silent}, "have to be started"},
	} {
		if got := explainNoMaster(client.Status{Cell: "foo", Replicas: c.replicas}); !strings.Contains(got, c.want) {
			t.Errorf("%q does not say %q", got, c.want)
		}
	}
}

// Without a master nobody says how much there is in the cell: no figure is shown, as it would be false.
func TestStatusWithoutAMaster(t *testing.T) {
	var b bytes.Buffer
	asJSON, asText := &globals{output: "json"}, &globals{output: "text"}
	none := client.Status{Cell: "foo", Replicas: []client.ReplicaStatus{{ID: "r1", Role: "replica"}}}
	lists := `"epoch":null,"replicas":[{`
	if err := asJSON.printStatus(&b, none, ""); err == nil || !strings.Contains(b.String(), lists) || !strings.Contains(b.String(), `"sessions":null,"nodes":null,"locks":null,"level":null,`) {
		t.Errorf("%v: %s", err, &b)
	}
	for level, want := range []string{"cell foo, no master, its feature level, sessions, nodes and locks are not known\n", "cell foo, no master, feature level 1 at least: its sessions, nodes and locks are not known\n"} {
		b.Reset()
		none.Level = level
		if err := asText.printStatus(&b, none, ""); err == nil || !strings.HasPrefix(b.String(), want) {
			t.Errorf("%v: %s; want %s", err, &b, want)
		}
	}
	b.Reset()
	empty := client.Status{Cell: "foo", Master: "r1", Epoch: 3, Level: 2, Nodes: 9}
	if err := asJSON.printStatus(&b, empty, ""); err != nil || !strings.Contains(b.String(), `"epoch":3,`) || !strings.Contains(b.String(), `"sessions":0,"nodes":9,"locks":0,"level":2,`) {
		t.Errorf("%v: %s", err, &b)
	}
}

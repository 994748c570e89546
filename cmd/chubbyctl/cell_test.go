package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/celltest"
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
	if err := printStatus(g.output, &b, client.Status{Cell: "foo", Master: "r1"}, "r1 and r2 differ"); err != nil || !strings.Contains(b.String(), `"divergence":"r1 and r2 differ"`) {
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
	if err := printStatus(asJSON.output, &b, none, ""); err == nil || !strings.Contains(b.String(), lists) || !strings.Contains(b.String(), `"sessions":null,"nodes":null,"locks":null,"level":null,`) {
		t.Errorf("%v: %s", err, &b)
	}
	for level, want := range []string{"cell foo, no master, its feature level, sessions, nodes and locks are not known\n", "cell foo, no master, feature level 1 at least: its sessions, nodes and locks are not known\n"} {
		b.Reset()
		none.Level = level
		if err := printStatus(asText.output, &b, none, ""); err == nil || !strings.HasPrefix(b.String(), want) {
			t.Errorf("%v: %s; want %s", err, &b, want)
		}
	}
	b.Reset()
	empty := client.Status{Cell: "foo", Master: "r1", Epoch: 3, Level: 2, Nodes: 9}
	if err := printStatus(asJSON.output, &b, empty, ""); err != nil || !strings.Contains(b.String(), `"epoch":3,`) || !strings.Contains(b.String(), `"sessions":0,"nodes":9,"locks":0,"level":2,`) {
		t.Errorf("%v: %s", err, &b)
	}
}

// cell status --check fails for what somebody has to look at, and says what that is.
func TestStatusIsChecked(t *testing.T) {
	well := func(id string) client.ReplicaStatus {
		return client.ReplicaStatus{ID: id, Healthy: true, DiskFree: 10 << 30}
	}
	for want, change := range map[string]func(s *client.Status, fault *string){
		"":                         func(s *client.Status, _ *string) { s.Replicas[1].Lag, s.Replicas[2].DiskFree = 999, -1 },
		"r2 does not answer":       func(s *client.Status, _ *string) { s.Replicas[1].Err = errors.New("down") },
		"r3 is not OK":             func(s *client.Status, _ *string) { s.Replicas[2].Healthy = false },
		"r2 is 1000 entries":       func(s *client.Status, _ *string) { s.Replicas[1].Lag = 1000 },
		"r1 has less than 1 GiB":   func(s *client.Status, _ *string) { s.Replicas[0].DiskFree = 1<<30 - 1 },
		"their states differ":      func(_ *client.Status, fault *string) { *fault = "their states differ" },
		"r1 is not OK; r2 is not":  func(s *client.Status, _ *string) { s.Replicas[0].Healthy, s.Replicas[1].Healthy = false, false },
		"cell main is not well: r": func(s *client.Status, _ *string) { s.Replicas[0].Healthy = false },
	} {
		s, fault := client.Status{Cell: "main", Master: "r1", Replicas: []client.ReplicaStatus{well("r1"), well("r2"), well("r3"), {Err: errors.New("no member")}}}, ""
		change(&s, &fault)
		err := checkStatus(s, fault)
		if want == "" && err != nil || want != "" && (exitCode(err) != exitFailed || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// Whatever state an upgrade is in, the next step is said.
func TestNextStepOfUpgrade(t *testing.T) {
	replica := func(id, version string, level int) client.ReplicaStatus {
		return client.ReplicaStatus{ID: id, Version: version, MaxLevel: level}
	}
	silent := client.ReplicaStatus{ID: "r3", Client: "h3:7421", Err: errors.New("refused")}
	const goBack = " Until the upgrade is finished every replica can go back to the old version."
	for _, c := range []struct {
		name     string
		level    int
		replicas []client.ReplicaStatus
		want     string
	}{
		{"nothing", 1, []client.ReplicaStatus{replica("r1", "v1", 1), replica("r2", "v1", 1)}, "There is nothing to do."},
		{"a version without a level", 1, []client.ReplicaStatus{replica("r1", "v1", 1), replica("r2", "v2", 1)}, "Next: start the other replicas with the new version, one after the other. It has no new feature level."},
		{"one is replaced", 1, []client.ReplicaStatus{replica("r1", "v2", 2), replica("r2", "v1", 1), replica("r3", "v1", 1)}, "Next: start r2 and r3 with the new version, one after the other." + goBack},
		{"one is left, and one down", 1, []client.ReplicaStatus{replica("r1", "v2", 2), replica("r2", "v1", 1), silent}, "Next: start r2 with the new version, one after the other; see why r3 does not answer." + goBack},
		{"one is down", 1, []client.ReplicaStatus{replica("r1", "v2", 2), replica("r2", "v2", 2), silent}, "Next: see why r3 does not answer." + goBack},
		{"all are replaced", 1, []client.ReplicaStatus{replica("r1", "v2", 2), replica("r2", "v2", 2)}, "Next: 'chubbyctl cell upgrade finish' raises the cell to feature level 2. After that no replica can go back to the old version."},
		{"it is finished, and one down", 2, []client.ReplicaStatus{replica("r1", "v2", 2), silent}, "Next: see why r3 does not answer."},
	} {
		f := newUpgradeFields(client.Status{Cell: "foo", Master: "r1", Level: c.level, Replicas: c.replicas})
		if f.Next != c.want {
			t.Errorf("%s: %q, want %q", c.name, f.Next, c.want)
		}
	}
}

// Without a master nobody says that a replica can go back: those that answer may have been started
// a moment ago, and not have applied that the upgrade was finished.
func TestUpgradeWithoutMaster(t *testing.T) {
	const again = "ask again when the master answers: until then it is not known what the cell has finished."
	silent := client.ReplicaStatus{ID: "r3", Client: "h3:7421", Err: errors.New("refused")}
	for _, c := range []struct {
		level    int
		replicas []client.ReplicaStatus
		next     string
		says     string
	}{
		{0, []client.ReplicaStatus{{ID: "r1", MaxLevel: 2}, silent}, "Next: see why r3 does not answer; " + again, "the feature level of cell foo is not known: no master answers\n"},
		{1, []client.ReplicaStatus{{ID: "r1", MaxLevel: 2}, {ID: "r2", MaxLevel: 1}}, "Next: " + again, "cell foo is at feature level 1 at least: no master answers\n"},
	} {
		f := newUpgradeFields(client.Status{Cell: "foo", Level: c.level, Replicas: c.replicas})
		var out strings.Builder
		if err := printUpgrade("", &out, f); err != nil {
			t.Fatal(err)
		}
		if f.Next != c.next || !strings.HasPrefix(out.String(), c.says) {
			t.Errorf("level %d: %q, want %q and %q", c.level, out.String(), c.says, c.next)
		}
	}
}

// A command that finds no server says what to do: to start a cell, or which cells the configuration
// has.
func TestNothingListensIsExplained(t *testing.T) {
	t.Setenv("CHUBBY_CELLS", "main=h1:7421;other=h2:7421")
	t.Setenv("CHUBBY_CONFIG", "/dev/null")
	none := &api.Error{Code: api.Unavailable, Path: "/ls/man", Message: "no server of cell man is running", Err: client.NothingListens}
	err := adviseOnCell(&globals{}, none)
	if exitCode(err) != exitUnavailable || !strings.Contains(err.Error(), "main, other") || strings.Contains(err.Error(), "every server") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
	if other := errors.New("x"); !errors.Is(adviseOnCell(&globals{}, other), other) {
		t.Error("another error was changed")
	}
	for want, got := range map[string]string{
		"chubbyd dev":        cellAdvice(&globals{}, "local", nil),
		"check CHUBBY_CELLS": cellAdvice(&globals{}, "main", []string{"main"}),
		"check --servers":    cellAdvice(&globals{servers: []string{"h:1"}}, "local", nil),
		"main":               cellAdvice(&globals{}, "man", []string{"main"}),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("advice %q lacks %q", got, want)
		}
	}
}

// The advice takes nothing away from what a command says of such an error: its words, and its exit code.
func TestAdviceKeepsWhatWasSaid(t *testing.T) {
	t.Setenv("CHUBBY_CELLS", "main=h1:7421")
	none := &api.Error{Code: api.Unavailable, Path: "/ls/main/a", Message: "no server of cell main is running", Err: client.NothingListens}
	err := adviseOnCell(&globals{}, &exitError{exitFailed, fmt.Errorf("wrote /ls/main/a, but what it is like now is not known: %w", none)})
	if exitCode(err) != exitFailed || !strings.Contains(err.Error(), "wrote /ls/main/a") || !strings.Contains(err.Error(), "check CHUBBY_CELLS") {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
}

// A replica that is written where transfer takes a cell is found, whether nothing listens where that cell should be, or another
// cell answers.
func TestTransferToAReplicaAsACell(t *testing.T) {
	const advice = "if r9 is a replica: 'chubbyctl cell transfer --to r9'"
	synctest.Test(t, func(t *testing.T) {
		c := celltest.Start(t, 1)
		refuse := func(context.Context, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
		for _, row := range []struct {
			line    string
			dial    func(context.Context, string) (net.Conn, error)
			code    int
			advised bool
		}{
			{"cell transfer r9", refuse, exitUnavailable, true},
			{"cell transfer r9", c.Dial, exitFailed, true},
			{"cell transfer r9 --to r1", c.Dial, exitFailed, false},
			{"cell transfer", refuse, exitUnavailable, false},
		} {
			printed, code := runOver(t, c, row.dial, row.line, "")
			if code != row.code || strings.Contains(printed, advice) != row.advised {
				t.Errorf("%s: exit %d: %s", row.line, code, printed)
			}
		}
	})
}

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/misuse"
)

// lintExample is a report with findings of each kind.
func lintExample() misuse.Report {
	ann := api.Holder{Session: 7, Principal: "ann", Host: "web1", PID: 4711}
	return misuse.Report{Epoch: 9, Since: time.Hour, More: 3, Findings: []misuse.Finding{
		{Kind: misuse.Polling, Who: ann, Path: "/ls/foo/config", Count: 1200, Measured: 10 * time.Minute},
		{Kind: misuse.BriefHolds, Who: api.Holder{Session: 8}, Path: "/ls/foo/lock", Count: 900, Share: 0.95, Measured: 5 * time.Minute},
		{Kind: misuse.BriefSessions, Who: api.Holder{Principal: "batch"}, Count: 300, Measured: time.Minute},
		{Kind: misuse.ShortLease, Who: ann, Measured: time.Minute, Lease: 2 * time.Second},
		{Kind: 200, Who: ann, Count: 1, Measured: time.Minute},
	}}
}

func TestLintText(t *testing.T) {
	var b bytes.Buffer
	if err := printLint("", &b, lintExample()); exitCode(err) != exitMismatch {
		t.Errorf("it exits with %v", err)
	}
	for _, want := range []string{
		"polling", "s7 ", "ann on web1 (pid 4711)", "/ls/foo/config", "1200", "2.0", "900 (95 %)", "all ", "batch", "lease 2s", "and 3 more findings",
		"polling (docs/misuse.md#polling)", "  what:    " + misuse.Polling.What(), "  why:     " + misuse.Polling.Why(), "  instead: " + misuse.Polling.Instead(),
		"  not seen: " + misuse.BriefSessions.Unseen(), "misuse 200: this chubbyctl is too old to know it", "epoch 9, which has counted for 1h",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := printLint("", &b, misuse.Report{Epoch: 9, Since: time.Minute}); err != nil || b.String() != "no client misuses the cell, as far as its master (of epoch 9) has counted, for 1m0s\n" {
		t.Errorf("printed %q: %v", b.String(), err)
	}
}

func TestLintJSON(t *testing.T) {
	var b bytes.Buffer
	if err := printLint("json", &b, lintExample()); exitCode(err) != exitMismatch {
		t.Errorf("it exits with %v", err)
	}
	var got struct {
		Epoch    uint64
		SinceS   float64 `json:"since_s"`
		More     int
		Findings []struct {
			Rule, Session, Principal, Path, Instead string
			PID                                     int
			PerS                                    float64  `json:"per_s"`
			LeaseS                                  *float64 `json:"lease_s"`
			Share                                   *float64
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	f := got.Findings
	if len(f) != 5 || got.Epoch != 9 || got.SinceS != 3600 || got.More != 3 {
		t.Fatalf("printed %s", b.String())
	}
	if f[0].Rule != "polling" || f[0].Session != "s7" || f[0].PID != 4711 || f[0].Path != "/ls/foo/config" || f[0].PerS != 2 || f[0].Share != nil || f[0].LeaseS != nil || f[0].Instead == "" {
		t.Errorf("polling is %+v", f[0])
	}
	if f[1].Principal != "" || *f[1].Share != 0.95 || f[2].Session != "" || f[2].Principal != "batch" || *f[3].LeaseS != 2 {
		t.Errorf("the others are %+v", f[1:])
	}
}

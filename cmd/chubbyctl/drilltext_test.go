package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/chubbylock/chubby/api"
)

// A plan says of leases and lock-delays only where these matter: the holder of a lock whose session is ended loses it, however long they are.
func TestPlanOfSessionLossPromisesNothing(t *testing.T) {
	for kind, says := range map[string]bool{drillFailOver: true, drillHardFailOver: true, drillOutage: true, drillSessionLoss: false} {
		var b bytes.Buffer
		o := &drillOptions{globals: &globals{}, kind: kind, length: time.Second, out: &b}
		if err := o.printPlan(o.plan(&cellView{})); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(b.String(), "no holder gives up its lock"); said != says {
			t.Errorf("%v:\n%s", kind, b.String())
		}
	}
}

// A report of a slow client says that the cache lease ended a wait only if it can have been so.
func TestReportOfSlowClientSaysWhatEndedTheWait(t *testing.T) {
	for longest, lapsed := range map[time.Duration]bool{time.Second: false, 2600 * time.Millisecond: true} {
		var b bytes.Buffer
		o := &drillOptions{globals: &globals{}, kind: drillSlowClient, out: &b}
		r := &drillReport{Slow: &slowFields{File: "/ls/local/x", SilentS: longest.Seconds(), Writes: 1, LongestS: longest.Seconds(), AtMostS: api.CacheLease.Seconds()}}
		if err := o.printReport(r); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(b.String(), "until its cache lease of 2.5s was over"); said != lapsed {
			t.Errorf("the longest write took %v:\n%s", longest, b.String())
		}
	}
}

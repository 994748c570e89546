package main

import (
	"testing"
	"time"
)

// A small measurement of real cells finds every cost of which there can be nothing but more than none. It is not
// run beside other tests: the bytes on the loopback interface are those of all processes.
func TestSizing(t *testing.T) {
	dir := t.TempDir()
	o := options{systems: []string{"chubby"}, dir: dir, repo: ".."}
	c, err := measureSizing(t.Context(), o, dir, newRecord(machine{CPUs: 2, LoadAvg: "0.01 0 0"}, o), sizingScale{things: 100, measure: time.Second, settle: 100 * time.Millisecond, looks: 25})
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]float64{
		"memory of a replica": c.Base.Memory, "disk of a replica": c.Base.Disk, "snapshot of a session": c.Session.Snapshot, "snapshot of a node": c.Node.Snapshot,
		"snapshot of a byte": c.Byte.Snapshot, "snapshot of a lock": c.Lock.Snapshot, "processor of a write": c.Write.Master, "network of a write": c.Write.Clients,
		"log of a write": c.Write.Log, "processor of a read": c.Read.Master, "writes": c.MostWrites, "entries": c.MostEntries, "interval": c.Interval,
	} {
		if !(n > 0) {
			t.Errorf("%s is %v", name, n)
		}
	}
	if !c.Quiet {
		t.Error("a load of 0.01 is not quiet")
	}
	if c.Byte.Snapshot < 0.9 || c.Byte.Snapshot > 1.5 || c.Write.Log < contents {
		t.Errorf("a byte of contents takes %v in a snapshot, a write of %d bytes %v in the log", c.Byte.Snapshot, contents, c.Write.Log)
	}
}

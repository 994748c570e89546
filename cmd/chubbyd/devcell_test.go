package main

import (
	"os"
	"testing"

	"github.com/chubbylock/chubby/cell"
)

// All replicas of dev are on one disk, and none of them ends because that takes some seconds.
func TestDevIsPatientWithItsDisk(t *testing.T) {
	c := newDevCell("main", t.TempDir(), 3, 7421)
	if err := c.writeConfigs(); err != nil {
		t.Fatal(err)
	}
	name := c.Replicas[0].configFile()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	d := newDraft(name)
	d.readYAML(name, text)
	if problems := d.validate(); len(problems) > 0 || d.settings.replica.DiskStall < 10*cell.DefaultDiskStall {
		t.Errorf("an operation on the disk may take %v; %v", d.settings.replica.DiskStall, problems)
	}
}

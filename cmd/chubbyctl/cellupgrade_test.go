package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/client"
)

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
		if err := new(globals).printUpgrade(&out, f); err != nil {
			t.Fatal(err)
		}
		if f.Next != c.next || !strings.HasPrefix(out.String(), c.says) {
			t.Errorf("level %d: %q, want %q and %q", c.level, out.String(), c.says, c.next)
		}
	}
}

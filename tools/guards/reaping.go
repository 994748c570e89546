package main

// reapingSafeguards cover actions on all of a set: on old snapshots, and on late clients.
func reapingSafeguards() []safeguard {
	return []safeguard{
		{
			name: "old snapshots are removed by the names of their directories", file: "cell/internal/disk/stores.go",
			old: "math.MaxInt, opts.RaftLog) // see removeOld", new: "min(math.MaxInt, maxSnapshots), opts.RaftLog) // see removeOld",
			pkg: "./cell/internal/disk", test: "TestOldSnapshotsNameRots",
		},
		{
			name: "those late for a removal are cut off together", file: "cell/internal/master/remover.go",
			old: "		for _, cl := range one.ch.clearings {\n			if !cl.isDone() {\n", new: "		for _, cl := range one.ch.clearings {\n			if cl == one.ch.nextClearing() {\n",
			pkg: "./cell/internal/master", test: "TestLateForARemovalAreCutOffTogether",
		},
		{
			name: "a look for late clients lets others in", file: "cell/internal/master/coherence.go",
			old: "	for _, cl := range ch.clearings {\n		for id := range co.copyset.slowOf(cl) {\n", new: "	for range 1 {\n		for id := range co.copyset.slow(ch) {\n",
			pkg: "./cell/internal/master", test: "TestLookForLateClientsLetsOthersIn",
		},
		{
			name: "naming the clients that hold up a change lets others in", file: "cell/internal/master/coherence.go",
			old: "		ids = ids[:min(len(ids), most)]\n		co.epoch.mu.pause(1)\n", new: "		ids = ids[:min(len(ids), most)]\n",
			pkg: "./cell/internal/master", test: "TestLookForLateClientsLetsOthersIn",
		},
	}
}

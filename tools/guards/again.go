package main

// againSafeguards cover things that happen twice: a retried command, a copy of a request, a
// repeated grant.
func againSafeguards() []safeguard {
	return []safeguard{
		{
			name: "an eviction that was refused is tried again", file: "cell/internal/master/timekeeper.go",
			old: "		t.revocations.evict(*c)\n", new: "		_ = c\n",
			pkg: "./cell/internal/master", test: "TestRefusedEviction",
		},
		{
			name: "an Open that may create is refused by the log", file: "cell/internal/master/files.go",
			old: "			if r.Create.Create != api.MustExist {\n", new: "			if false {\n",
			pkg: "./cell/internal/master", test: "TestRefusedOpenMakesNothingLater",
		},
		{
			name: "an Open that the log may yet refuse is not done without the log", file: "cell/internal/master/files.go",
			old: "one.logged || f.handles.refusing[one.Owner] > 0 || f.epoch", new: "one.logged || f.epoch",
			pkg: "./cell/internal/master", test: "TestCopyOfRefusedOpen",
		},
		{
			name: "and not from the look at the quota on", file: "cell/internal/master/files.go",
			old: "		if err != nil {\n			f.handles.refusing", new: "		if false {\n			f.handles.refusing",
			pkg: "./cell/internal/master", test: "TestCopyBeforeRefusal",
		},
		{
			name: "a refusal is on its way though its call has ended", file: "cell/internal/master/coherence.go",
			old: "	result, err = co.epoch.refuseAs(ctx, by, because, after)\n",
			new: "	result, err = co.epoch.refuseAs(ctx, by, because, func() {})\n	after()\n",
			pkg: "./cell/internal/master", test: "TestCopyOfRefusedOpen",
		},
		{
			name: "a refusal that the log is not asked for is none", file: "cell/internal/master/refusals.go",
			old: "		after()\n		return raftfsm.Result{}, err\n", new: "		return raftfsm.Result{}, err\n",
			pkg: "./cell/internal/master", test: "TestRefusalsThatAreNotLogged",
		},
		{
			name: "an earlier grant does not take the place of a later one", file: "client/acquire.go",
			old: "h.lock.seq.Generation > l.seq.Generation:", new: "false:",
			pkg: "./client", test: "TestLaterGrantEndsTheEarlier",
		},
		{
			name: "a later grant ends the lock of an earlier one", file: "client/acquire.go",
			old: "was.markTaken(lostSinceText)", new: "false",
			pkg: "./client", test: "TestLaterGrantEndsTheEarlier",
		},
	}
}

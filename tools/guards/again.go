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

package main

// misuseSafeguards are those of what lint says of clients: that it accuses nobody who has done nothing, and shows nothing to who may not look.
func misuseSafeguards() []safeguard {
	const (
		dir    = "cell/internal/master/"
		master = "./cell/internal/master"
	)
	return []safeguard{
		{
			name: "lint shows what its viewer may read", file: dir + "lint.go",
			old: "	return own || reads\n", new: "	return own || f.name != \"\"\n",
			pkg: "./cell", test: "TestLintIsForWhoMayLook",
		},
		{
			name: "lint names sessions to who may see them", file: dir + "lint.go",
			old: "	if !own {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestLintIsForWhoMayLook",
		},
		{
			name: "lint counts for strangers what was done at a node that they may read", file: dir + "lint.go",
			old: "	f.Who, f.Count = api.Holder{Session: f.Who.Session}, f.there\n", new: "	f.Who = api.Holder{Session: f.Who.Session}\n",
			pkg: "./cell", test: "TestLintTellsNobodyOfOtherNodes",
		},
		{
			name: "a write that is refused is no write", file: dir + "files.go",
			old: "err == nil && writing != noAction {", new: "writing != noAction {",
			pkg: "./cell", test: "TestRefusedWritesAreNoWrites",
		},
		{
			name: "only the holder is believed about its sequencer", file: dir + "locks.go",
			old: "node.Lock == g && node.Holds(h.Owner)", new: "node.Lock == g",
			pkg: master, test: "TestOnlyTheHolderSaysWhetherItHasReadItsSequencer",
		},
		{
			name: "a client is seen for a while before it is judged", file: dir + "lint.go",
			old: "	if measured < misuse.MinTime {\n", new: "	if measured <= 0 {\n",
			pkg: master, test: "TestMisuseBeginsAtItsLimits",
		},
		{
			name: "a misuse has a rate", file: dir + "lint.go",
			old: " && rate >= l.PerSecond", new: "",
			pkg: master, test: "TestMisuseBeginsAtItsLimits",
		},
		{
			name: "a misuse is most of what a client does", file: dir + "lint.go",
			old: " && f.Share >= l.Share", new: "",
			pkg: master, test: "TestMisuseBeginsAtItsLimits",
		},
		{
			name: "what was done long ago is forgotten", file: dir + "usage.go",
			old: "u.window+1 != u.all.window {", new: "u.window > u.all.window {",
			pkg: master, test: "TestUsageForgets",
		},
		{
			name: "a change excuses a look", file: dir + "events.go",
			old: "		h.known = known{}\n", new: "",
			pkg: "./cell", test: "TestLintOfWhatHasChanged",
		},
		{
			name: "a client's own word counts about its lock", file: dir + "usage.go",
			old: "		place.CompareAndSwap(uint64(g), 0)\n", new: "",
			pkg: master, test: "TestUnfencedTurns",
		},
		{
			name: "a lock-delay takes the place of a sequencer", file: dir + "holdtimes.go",
			old: "!one.delays && t.unread", new: "t.unread",
			pkg: master, test: "TestUnfencedTurns",
		},
		{
			name: "a leak is of handles on the same nodes", file: dir + "lint.go",
			old: "	if len(nodes)*2 > one.Count {\n", new: "	if false {\n",
			pkg: master, test: "TestHandleLeak",
		},
		{
			name: "a report of lint has a bound", file: dir + "lint.go",
			old: "min(len(seen), most, api.MaxListed)", new: "min(len(seen), most)",
			pkg: master, test: "TestLintIsBounded",
		},
		{
			name: "principals that are counted have a bound", file: dir + "usage.go",
			old: "const maxUsagePrincipals = 1024", new: "const maxUsagePrincipals = 1025",
			pkg: master, test: "TestSessionsThatEndSoon",
		},
	}
}

package main

// shellRecipeSafeguards cover what shells use of the recipes, and the look at an election.
func shellRecipeSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a value is not told of a primary that has not written it", file: "client/recipe/leader.go",
			old: "	if stat.Content > x.Lock.Generation {\n", new: "	if stat.Content > 0 {\n",
			pkg: "./client/recipe", test: "TestLeader$|TestLeaderOfOneMoment",
		},
		{
			name: "several locks are tried without a wait", file: "client/recipe/all.go",
			old: "	if o.Try {\n", new: "	if false {\n",
			pkg: "./client/recipe", test: "TestAcquireAllTry",
		},
		{
			name: "several locks count as the one that is lost first", file: "cmd/chubbyctl/held.go",
			old: "		least = min(least, lock.ExclusiveUntil())\n", new: "		return lock.ExclusiveUntil()\n",
			pkg: "./cmd/chubbyctl", test: "TestTogether",
		},
		{
			name: "a command without its dashes is no lock", file: "cmd/chubbyctl/work.go",
			old: " && (!o.several || len(argv) == 0):", new: " && !o.several:",
			pkg: "./cmd/chubbyctl", test: "TestCommandLineFaults",
		},
		{
			name: "pauses before CMD is run again have a bound", file: "cmd/chubbyctl/again.go",
			old: "		pause = min(2*pause, longestPause)\n", new: "		pause *= 2\n",
			pkg: "./cmd/chubbyctl", test: "TestRetryAfterEachLoss",
		},
		{
			name: "CMD's own exit code is no loss", file: "cmd/chubbyctl/again.go",
			old: "own.code == exitLost && own.err != nil", new: "own.code == exitLost",
			pkg: "./cmd/chubbyctl", test: "TestRetryAfterEachLoss",
		},
		{
			name: "who is asked to end does not run CMD again", file: "cmd/chubbyctl/again.go",
			old: "if !o.retry || asked.Err() != nil || ", new: "if !o.retry || ",
			pkg: "./cmd/chubbyctl", test: "TestWhoIsAskedToEndDoesNotRetry",
		},
		{
			name: "a request to end is heard between SIGHUP and another run", file: "cmd/chubbyctl/again.go",
			old: "		if asked.Err() != nil { //", new: "		if false { //",
			pkg: "./cmd/chubbyctl", test: "TestWhoIsAskedToEndDoesNotRetry",
		},
		{
			name: "the lock of several that is not had is named", file: "cmd/chubbyctl/takelock.go",
			old: "			if p.String() == e.Path {\n", new: "			if false {\n",
			pkg: "./cmd/chubbyctl", test: "TestSeveralLocksThatAreNotHad",
		},
		{
			name: "one who leaves and one who comes are not one", file: "cmd/chubbyctl/members.go",
			old: "		case there && (old.Session != m.Session || ", new: "		case there && false && (old.Session != m.Session || ",
			pkg: "./cmd/chubbyctl", test: "TestMemberChanges",
		},
	}
}

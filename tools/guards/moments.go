package main

// momentSafeguards cover events while a request waits: to the lock, to its file, and to what is
// known of its holder.
func momentSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the checker is asked after older requests have left", file: "sequencer/guard.go",
			old: "	if waited {\n", new: "	if waited && false {\n",
			pkg: "./sequencer", test: "TestCheckerIsAskedAfterEveryWait",
		},
		{
			name: "the checker is asked after a token was stored", file: "sequencer/guard.go",
			old: "	return a, g.confirm(ctx, a)\n}\n\n// confirm", new: "	return a, nil\n}\n\n// confirm",
			pkg: "./sequencer", test: "TestCheckerIsAskedAfterEveryWait",
		},
		{
			name: "who is overtaken is stale, whatever the checker says", file: "sequencer/guard.go",
			old: "	err := g.ask(ctx, a.seq)\n", new: "	err := g.ask(ctx, a.seq)\n	if err != nil {\n		return err\n	}\n",
			pkg: "./sequencer", test: "TestOvertakenAfterTheWait",
		},
		{
			name: "a candidate whose lock is taken at once remains one", file: "client/recipe/election.go",
			old: "		case errors.Is(err, api.LockLost):", new: "		case false:",
			pkg: "./client/recipe", test: "TestTakenInTheMomentOfTheGrant",
		},
		{
			name: "a turn that is taken at once is waited for again", file: "client/recipe/turnstile.go",
			old: "	for err != nil && passing(err) {\n", new: "	for false {\n",
			pkg: "./client/recipe", test: "TestTakenInTheMomentOfTheGrant",
		},
		{
			name: "an item or a slot that is taken at once is tried again", file: "client/recipe/held.go",
			old: "errors.Is(err, api.LockDelayed) || errors.Is(err, api.LockLost)\n", new: "errors.Is(err, api.LockDelayed)\n",
			pkg: "./client/recipe", test: "TestTakenInTheMomentOfTheGrant",
		},
		{
			name: "one slot does not end the wait for the others", file: "client/recipe/slots.go",
			old: "		case err != nil && !passing(err):\n", new: "		case err != nil:\n",
			pkg: "./client/recipe", test: "TestTakenFromWhoWaitsForAll|TestSlotIsDeleted",
		},
		{
			name: "a slot that is deleted when it is tried is tried again", file: "client/recipe/slots.go",
			old: "		if !gone(err) {\n			return nil, err\n", new: "		if true {\n			return nil, err\n",
			pkg: "./client/recipe", test: "TestSlotIsDeletedWhenItIsTried",
		},
		{
			name: "the error of several locks is not of their release", file: "client/recipe/all.go",
			old: "			_ = all.release(ctx)\n			if ctx.Err()", new: "			_ = all.release(ctx)\n			why = context.Cause(waiting)\n			if ctx.Err()",
			pkg: "./client/recipe", test: "TestOneOfSeveralIsDeleted",
		},
		{
			name: "a nomination is of a candidate, not of its session", file: "client/recipe/candidate.go",
			old: "after.Lock.Generation == before.Lock.Generation {", new: "after.Lock.Generation == before.Lock.Generation || holds(after.Lock, list[at].record.session()) {",
			pkg: "./client/recipe", test: "TestNominateAmongCandidatesOfOneSession",
		},
		{
			name: "nobody waits for who cannot be named", file: "client/recipe/doublebarrier.go",
			old: "	if most <= api.MaxContents {\n", new: "	if true {\n",
			pkg: "./client/recipe", test: "TestDoubleBarrierOfALongPath",
		},
		{
			name: "a candidate has room to say that it was elected", file: "client/recipe/candidate.go",
			old: "&mark{Reign: api.MaxGeneration, Turn: math.MaxInt}, api.MaxGeneration\n", new: "&mark{Turn: math.MaxInt}, 0\n	r.Chosen = nil\n",
			pkg: "./client/recipe", test: "TestCandidateOfTheGreatestValue",
		},
		{
			name: "it is told that a lock may be held still", file: "cmd/chubbyctl/held.go",
			old: "err != nil && !isLost(err) {", new: "err != nil && t.lock.Err() == nil {",
			pkg: "./cmd/chubbyctl", test: "TestLockThatIsNotReleased",
		},
		{
			name: "a guard's file has a name", file: "sequencer/store.go",
			old: "	if name == \"\" {\n", new: "	if false {\n",
			pkg: "./sequencer", test: "TestFileStoreWithoutAName",
		},
		{
			name: "a primary is listed with the value of now", file: "client/recipe/candidate.go",
			old: "				if one.Value, err = valueOf(ctx, c, path, one.Value); err != nil {\n", new: "				if err != nil {\n",
			pkg: "./client/recipe", test: "TestCandidatesHaveTheValueOfNow",
		},
	}
}

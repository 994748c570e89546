package main

// recipeSafeguards cover what is built on locks: recipes, and the check at the
// servers that a lock protects.
func recipeSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a guard refuses what is older than the newest", file: "sequencer/guard.go",
			old: "	case newest > s.Token():\n", new: "	case false && newest > s.Token():\n",
			pkg: "./sequencer", test: "TestNeverLowerThanBefore|TestStaleSequencerIsRefused",
		},
		{
			name: "a kept answer falls at the lock's events", file: "client/checkerlocks.go",
			old: "	for _, err := range h.Events(ctx) {\n		k.mu.Lock()\n		l.invalidate()\n", new: "	for _, err := range h.Events(ctx) {\n		k.mu.Lock()\n",
			pkg: "./client", test: "TestCheckerFallsAtEvents",
		},
		{
			name: "an answer is as old as its question", file: "client/checkerlocks.go",
			old: "		l.good, l.sent, l.epoch = s, c.sent, c.epoch\n", new: "		l.good, l.sent, l.epoch = s, k.client.session.clock(), c.epoch\n",
			pkg: "./client", test: "TestCheckerAgeCountsFromTheQuestion",
		},
		{
			name: "what could not be sent is released all the same", file: "client/lock.go",
			old: "send: send, mustComplete: true,\n", new: "send: send,\n",
			pkg: "./client", test: "TestUnsentCloseAndRelease",
		},
		{
			name: "a slot of a semaphore is one holder's", file: "client/recipe/slots.go",
			old: "	l, err := h.TryAcquire(ctx, api.Exclusive,", new: "	l, err := h.TryAcquire(ctx, api.Shared,",
			pkg: "./client/recipe", test: "TestSemaphore",
		},
		{
			name: "a double barrier changes by compare-and-swap", file: "client/recipe/doublebarrier.go",
			old: "append(options, client.IfGeneration(stat.Content))...);", new: "append(options, client.IfGeneration(stat.Content))[:len(options)]...);",
			pkg: "./client/recipe", test: "TestDoubleBarrierRandom|TestDoubleBarrier$",
		},
		{
			name: "an item is done by who holds it", file: "client/recipe/item.go",
			old: "i.held.handle.Delete(ctx, client.IfSequencer(i.Sequencer()))", new: "i.held.handle.Delete(ctx)",
			pkg: "./client/recipe", test: "TestQueueDoneIsRefused|TestQueueRandom",
		},
		{
			name: "several locks are taken in one order", file: "client/recipe/all.go",
			old: "strings.Compare(string(a.path.Name()), string(b.path.Name()))", new: "strings.Compare(\"\", string(b.path.Name())) * 0",
			pkg: "./client/recipe", test: "TestAcquireAllNoDeadlock",
		},
		{
			name: "a winner looks again before it writes", file: "client/recipe/election.go",
			old: "		if behind {\n			return false, nil\n		}\n", new: "		_ = behind\n",
			pkg: "./client/recipe", test: "TestPriority|TestHandOver|TestElectionStorm",
		},
	}
}

// commandSafeguards cover commands that run under a lock.
func commandSafeguards() []safeguard {
	return []safeguard{
		{
			name: "nobody is left when the command is gone", file: "cmd/chubbyctl/internal/supervise/guardian_unix.go",
			old: "if g.ended && g.childless && len", new: "if g.ended && len",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestHoppingDescendants",
		},
		{
			name: "nothing is started when it is too late", file: "cmd/chubbyctl/internal/supervise/guardian_unix.go",
			old: "	if first.KillAt == 0 || first.StopAt <= now() {\n", new: "	if false {\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestLateStart",
		},
		{
			name: "the guardian acts when chubbyctl is gone", file: "cmd/chubbyctl/internal/supervise/guardian_unix.go",
			old: "				orders = nil\n				err = g.stopFamily()\n", new: "				orders = nil\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestSupervisorKilledOrStopped",
		},
		{
			name: "a command that must end is not told that it is safe", file: "cmd/chubbyctl/internal/supervise/guardian_unix.go",
			old: " && !(o.Unstopped && g.stopping)", new: "",
			pkg: "./cmd/chubbyctl", test: "TestSafeTooLate",
		},
		{
			name: "a holder is told for what another asks", file: "cell/internal/master/events.go",
			old: "node.Lock, claim.Reason, quiet", new: "node.Lock, \"\", quiet",
			pkg: "./client/recipe", test: "TestHolderLetsGoWhenItIsAsked",
		},
		{
			name: "a holder that a new master did not know is told for what another asks", file: "cell/internal/master/events.go",
			old: "got.Generation, first.claim.Reason, first.quiet", new: "got.Generation, \"\", first.quiet",
			pkg: "./client/recipe", test: "TestRequestDuringFailOverIsTold",
		},
		{
			name: "the work of a holder that was asked ends when the notice has passed", file: "client/recipe/revocable.go",
			old: "	timer := time.NewTimer(notice)\n", new: "	timer := time.NewTimer(2 * notice)\n",
			pkg: "./client/recipe", test: "TestHolderLetsGoWhenItIsAsked",
		},
	}
}

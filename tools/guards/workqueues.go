package main

// workQueueSafeguards cover what a work queue keeps of its items, and what shells do with them.
func workQueueSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a try is counted before the work begins", file: "client/recipe/itemrecord.go",
			old: "	r.Attempts++\n", new: "",
			pkg: "./client/recipe", test: "TestQueueCountsWorkersThatDie",
		},
		{
			name: "an item is begun as often as it may be", file: "client/recipe/itemrecord.go",
			old: "	if limit > 0 && r.Attempts >= limit {\n		r.Begun,", new: "	if false {\n		r.Begun,",
			pkg: "./client/recipe", test: "TestQueueCountsWorkersThatDie",
		},
		{
			name: "a try is counted of what was read", file: "client/recipe/itemrecord.go",
			old: "client.IfGeneration(was), client.IfSequencer(l.Sequencer()))", new: "client.IfSequencer(l.Sequencer()))",
			pkg: "./client/recipe", test: "TestQueueItemIsWrittenAfterItWasRead",
		},
		{
			name: "a try is counted by who holds the item", file: "client/recipe/itemrecord.go",
			old: "client.IfGeneration(was), client.IfSequencer(l.Sequencer()))", new: "client.IfGeneration(was))",
			pkg: "./client/recipe", test: "TestQueueTryOfWhoWasRobbedIsNotCounted",
		},
		{
			name: "an item is given back by who holds it", file: "client/recipe/itemrecord.go",
			old: "r.with(data), client.IfGeneration(was), client.IfSequencer(l.Sequencer()))", new: "r.with(data))",
			pkg: "./client/recipe", test: "TestQueueFailIsRefused",
		},
		{
			name: "a dead letter without a mark is one", file: "client/recipe/taking.go",
			old: "	case r.Dead:\n", new: "	case false:\n",
			pkg: "./client/recipe", test: "TestQueueMarks",
		},
		{
			name: "a mark holds for one generation of the contents", file: "client/recipe/queue.go",
			old: "fmt.Sprintf(\"%d.%s\", content, id)", new: "fmt.Sprintf(\"%d.%s\", 0*content, id)",
			pkg: "./client/recipe", test: "TestQueueMarks",
		},
		{
			name: "items of a higher priority come first", file: "client/recipe/queue.go",
			old: "cmp.Or(cmp.Compare(priorityOf(itemID(b)), priorityOf(itemID(a))), ", new: "cmp.Or(",
			pkg: "./client/recipe", test: "TestQueuePriorities",
		},
		{
			name: "nobody takes an item before its delay is over", file: "client/recipe/taking.go",
			old: "	if left > 0 {\n", new: "	if false {\n",
			pkg: "./client/recipe", test: "TestQueueDelay$",
		},
		{
			name: "a wrong clock makes a delay no longer than it is", file: "client/recipe/taking.go",
			old: "left = min(whole, max(0, ", new: "left = max(0, max(0, ",
			pkg: "./client/recipe", test: "TestQueueDelayByWrongClock",
		},
		{
			name: "dead letters have a bound", file: "client/recipe/taking.go",
			old: "	if t.q.o.Attempts > 0 && t.dead >= MaxDeadLetters {\n", new: "	if false {\n",
			pkg: "./client/recipe", test: "TestQueueOfDeadLettersIsFull",
		},
		{
			name: "an item of a later version is left alone", file: "client/recipe/itemrecord.go",
			old: "	case r.Version != itemVersion:\n", new: "	case false:\n",
			pkg: "./client/recipe", test: "TestQueueLeavesAloneWhatItDoesNotKnow",
		},
		{
			name: "only dead letters are retried and discarded", file: "client/recipe/deadletter.go",
			old: "		if err == nil && !r.Dead {\n", new: "		if false {\n",
			pkg: "./client/recipe", test: "TestQueueDeadLetters",
		},
		{
			name: "who waits hears of what is retried", file: "client/recipe/taking.go",
			old: "Events: []api.EventKind{api.EventChildAdded, api.EventChildModified}", new: "Events: []api.EventKind{api.EventChildAdded}",
			pkg: "./client/recipe", test: "TestQueueDeadLetters",
		},
		{
			name: "what CMD does not read keeps nobody", file: "cmd/chubbyctl/feed.go",
			old: "{ f.out.Close() }", new: "{}",
			pkg: "./cmd/chubbyctl", test: "TestFeed",
		},
	}
}

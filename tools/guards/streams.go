package main

// streamGuards are those of requests of which there are several copies at a time.
func streamGuards() []guard {
	return []guard{
		{
			name: "every stream stands for its request", file: "cell/queue.go",
			old: "		kept.streams++\n", new: "",
			pkg: "./cell", test: "TestEveryStreamStandsForItsRequest",
		},
		{
			name: "every stream stands for its request (crowd)", file: "cell/queue.go",
			old: "		kept.streams++\n", new: "",
			pkg: "./cell", test: "TestCrowd",
		},
		{
			name: "every copy of a Close keeps offers away", file: "cell/queue.go",
			old: "	if q.closing[owner]--; q.closing[owner] > 0 {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestRefusedCopyOfClose",
		},
		{
			name: "a waiter whose handle is closed is refused by the log", file: "cell/locks.go",
			old: "	if w.refusal != nil {\n		o.epoch.submit(", new: "	if w.refusal != nil {\n		o.tables.queues.finish(w.key(), *w.refusal)\n		o.epoch.submit(",
			pkg: "./cell", test: "TestWaiterOfAClosedHandleIsRefusedByTheLog",
		},
		{
			name: "the refusal of a waiter is tried again", file: "cell/observer.go",
			old: "		if w := o.offers.refusing(c.Cancel); w != nil {\n			o.tables.outbox.putRequest(w)\n		}\n", new: "",
			pkg: "./cell", test: "TestWaiterOfAClosedHandleIsRefusedByTheLog",
		},
		{
			name: "every stream of a request is answered", file: "cell/queue.go",
			old: "	close(w.done)\n", new: "	go func() { w.done <- struct{}{} }()\n",
			pkg: "./cell", test: "TestEveryStreamIsAnswered",
		},
		{
			name: "a lock that is broken again is lost once", file: "cell/loss.go",
			old: "told && was.generation == lost.Generation {\n", new: "told && was.generation == 0 {\n",
			pkg: "./cell", test: "TestLockIsLostOnce",
		},
	}
}

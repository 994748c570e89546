package main

// streamSafeguards cover requests with several concurrent copies.
func streamSafeguards() []safeguard {
	return []safeguard{
		{
			name: "every stream stands for its request", file: "cell/internal/master/queue.go",
			old: "		kept.streams++\n", new: "",
			pkg: "./cell/internal/master", test: "TestEveryStreamStandsForItsRequest",
		},
		{
			name: "every stream stands for its request (crowd)", file: "cell/internal/master/queue.go",
			old: "		kept.streams++\n", new: "",
			pkg: "./cell/internal/master", test: "TestCrowd",
		},
		{
			name: "every copy of a Close keeps offers away", file: "cell/internal/master/queue.go",
			old: "	if q.closing[owner]--; q.closing[owner] > 0 {\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestRefusedCopyOfClose",
		},
		{
			name: "a waiter whose handle is closed is refused by the log", file: "cell/internal/master/offers.go",
			old: "	if w.refusal != nil {\n		o.epoch.submit(", new: "	if w.refusal != nil {\n		o.queues.answerWaiter(w.key(), raftfsm.Answer{Refusal: w.refusal})\n		o.epoch.submit(",
			pkg: "./cell/internal/master", test: "TestWaiterOfAClosedHandleIsRefusedByTheLog",
		},
		{
			name: "the refusal of a waiter is tried again", file: "cell/internal/master/observer.go",
			old: "		if w := o.offers.refusedWaiter(c.Cancel); w != nil {\n			o.tables.outbox.putRequest(w)\n		}\n", new: "",
			pkg: "./cell/internal/master", test: "TestWaiterOfAClosedHandleIsRefusedByTheLog",
		},
		{
			name: "every stream of a request is answered", file: "cell/internal/master/queue.go",
			old: "	close(w.done)\n", new: "	go func() { w.done <- struct{}{} }()\n",
			pkg: "./cell/internal/master", test: "TestEveryStreamIsAnswered",
		},
		{
			name: "a lock that is broken again is lost once", file: "cell/internal/master/revocations.go",
			old: "told && was.generation == lost.Generation {\n", new: "told && was.generation == 0 {\n",
			pkg: "./cell/internal/master", test: "TestLockIsLostOnce",
		},
	}
}

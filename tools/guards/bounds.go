package main

// boundGuards are those of what keeps the work under the master's mutex, and what a
// client can make the master remember, bounded.
func boundGuards() []guard {
	return []guard{
		{
			name: "a waiter that is gone is in no index", file: "cell/queue.go",
			old: "	q.absent.drop(w)\n	if q.used[w.who]--", new: "	if q.used[w.who]--",
			pkg: "./cell", test: "TestQueuesAnswerAsTheirTwin",
		},
		{
			name: "one tick drops so many absent waiters", file: "cell/queue.go",
			old: "	for range most {\n", new: "	for range 1 << 30 {\n",
			pkg: "./cell", test: "TestForgetIsBounded",
		},
		{
			name: "long work under the mutex lets others in", file: "cell/pause.go",
			old: "	if p.steps >= maxSteps {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestPauseLetsOthersIn",
		},
		{
			name: "time spent waiting for the mutex extends no lease", file: "cell/clock.go",
			old: "		asleep = m.clock()\n		timer.Reset(next)\n", new: "		asleep = awake\n		timer.Reset(next)\n",
			pkg: "./cell", test: "TestHoldsExtendNoLease",
		},
		{
			name: "a loop that is always late forgives so much", file: "session/leases.go",
			old: "forgiven = min(slept, l.patience); forgiven > 0", new: "forgiven = slept; forgiven > 0",
			pkg: "./session", test: "TestPatienceEnds",
		},
	}
}

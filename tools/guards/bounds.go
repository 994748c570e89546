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
	}
}

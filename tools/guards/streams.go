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
			name: "every copy of a Close keeps offers away", file: "cell/locks.go",
			old: "			w.closing--", new: "			w.closing = 0",
			pkg: "./cell", test: "TestRefusedCopyOfClose",
		},
	}
}

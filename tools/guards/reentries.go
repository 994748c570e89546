package main

// reentrySafeguards cover a lock that functions under it may take again, and the order of candidates.
func reentrySafeguards() []safeguard {
	const pkg, file = "./client/recipe", "client/recipe/reentry.go"
	return []safeguard{
		{
			name: "a lock is kept for what is nested", file: file,
			old: "		<-t.idle\n", new: "",
			pkg: pkg, test: "TestLockedOutlived",
		},
		{
			name: "nothing is nested in a lock that was released", file: file,
			old: "	over := t.over\n", new: "	over := false\n",
			pkg: pkg, test: "TestLockedOutlived",
		},
		{
			name: "a lock that is lost is an error of what is nested", file: file,
			old: "	return t.held.lock.Err()\n", new: "	return nil\n",
			pkg: pkg, test: "TestLockedLost",
		},
		{
			name: "the same name in another cell is another lock", file: file,
			old: "	if p != t.path {", new: "	if false {",
			pkg: pkg, test: "TestLocked$",
		},
		{
			name: "candidates are listed in the order of the queue", file: "client/recipe/candidate.go",
			old: ", cmp.Compare(queue(a), queue(b)))", new: ", 0*cmp.Compare(queue(a), queue(b)))",
			pkg: pkg, test: "TestCandidatesInTheOrderOfTheQueue",
		},
		{
			name: "the next primary is the first of those who are none", file: "client/recipe/candidate.go",
			old: "		return one, slices.Delete(list, at, at+1), nil\n", new: "		return one, list, nil\n",
			pkg: pkg, test: "TestCandidatesBesideOneThatHasNotSaidYet",
		},
	}
}

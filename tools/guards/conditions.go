package main

// conditionSafeguards cover on what the command line makes a write depend, which flags it refuses, and what it says of an answer
// that could not be written.
func conditionSafeguards() []safeguard {
	const pkg = "./cmd/chubbyctl"
	return []safeguard{
		{
			name: "put --ephemeral depends on its sequencer", file: "cmd/chubbyctl/ephemeral.go",
			old: "			IfSequencer: seq,\n", new: "",
			pkg: pkg, test: "TestPutCreatesIfSequencer",
		},
		{
			name: "put --if-absent depends on its sequencer", file: "cmd/chubbyctl/put.go",
			old: "opts.Create, opts.IfSequencer = client.NewFile, seq\n", new: "opts.Create = client.NewFile\n",
			pkg: pkg, test: "TestPutCreatesIfSequencer|TestConditionsNeverCreate",
		},
		{
			name: "put --ephemeral --if-absent says by its exit code that there is a file", file: "cmd/chubbyctl/ephemeral.go",
			old: "o.exitCodeOf(withAdvice(err, p, client.NewFile))", new: "withAdvice(err, p, client.NewFile)",
			pkg: pkg, test: "TestPutIfAbsent|TestPutCreatesIfSequencer",
		},
		{
			name: "paths that are left are named on a full disk, too", file: "cmd/chubbyctl/unwritten.go",
			old: "		failed = err // which", new: "		_ = err // which",
			pkg: pkg, test: "TestSeveralPaths",
		},
		{
			name: "a flag that is given nothing is as none", file: "cmd/chubbyctl/apart.go",
			old: " && !(zero && f.Value.String() == f.DefValue)", new: " && (zero || !zero)",
			pkg: pkg, test: "TestFlagsThatGoTogether",
		},
	}
}

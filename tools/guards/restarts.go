package main

// restartGuards are those of a replica that starts on the data of an earlier run, or
// of an earlier version.
func restartGuards() []guard {
	return []guard{
		{
			name: "a log that a snapshot of the master's has overtaken is emptied", file: "cell/stores.go",
			old: "	if last < base {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestInterruptedInstall",
		},
	}
}

package main

// momentGuards are those of what happens while somebody waits: to a lock, to its file, and to what is believed
// of its holder.
func momentGuards() []guard {
	return []guard{
		{
			name: "the checker is asked after older requests have left", file: "sequencer/guard.go",
			old: "	if waited {\n", new: "	if waited && false {\n",
			pkg: "./sequencer", test: "TestCheckerIsAskedAfterEveryWait",
		},
		{
			name: "the checker is asked after a token was stored", file: "sequencer/guard.go",
			old: "	return a, g.confirm(ctx, a)\n}\n\n// confirm", new: "	return a, nil\n}\n\n// confirm",
			pkg: "./sequencer", test: "TestCheckerIsAskedAfterEveryWait",
		},
		{
			name: "who is overtaken is stale, whatever the checker says", file: "sequencer/guard.go",
			old: "	err := g.ask(ctx, a.seq)\n", new: "	err := g.ask(ctx, a.seq)\n	if err != nil {\n		return err\n	}\n",
			pkg: "./sequencer", test: "TestOvertakenAfterTheWait",
		},
	}
}

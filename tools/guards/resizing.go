package main

// resizingGuards are those of who relies on a lock, or on being registered, while it waits for something else, and of a
// file that several programs of a machine might rely on.
func resizingGuards() []guard {
	return []guard{
		{
			name: "a slot goes only while it is held", file: "client/recipe/semaphore.go",
			old: ", client.IfSequencer(one.lock.Sequencer()))\n", new: ")\n		_ = one\n",
			pkg: "./client/recipe", test: "TestVacatedSlotIsBrokenUnheard",
		},
		{
			name: "a slot that is lost ends the writing of the size", file: "client/recipe/semaphore.go",
			old: "err = s.write(within,", new: "err = s.write(ctx,",
			pkg: "./client/recipe", test: "TestVacatedSlotIsBrokenBeforeTheSizeIsWritten",
		},
		{
			name: "a candidate that stands back hears that it is none", file: "client/recipe/election.go",
			old: "k.standing.fail(context.Cause(registered))", new: "_ = registered",
			pkg: "./client/recipe", test: "TestCandidateLosesItsNameWhileItStandsBack",
		},
		{
			name: "a sequencer file is of one chubbyctl", file: "cmd/chubbyctl/sequencerfile.go",
			old: "err == nil && string(text) == own {\n		return", new: "err == nil && string(text) == own && false {\n		return",
			pkg: "./cmd/chubbyctl", test: "TestSequencerFileIsNotShared",
		},
	}
}

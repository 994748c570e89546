package main

// resizingSafeguards cover clients that rely on a lock, a registration, a file or another
// process while they wait for something else.
func resizingSafeguards() []safeguard {
	return []safeguard{
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
			name: "a candidate that stands back learns that its registration has ended", file: "client/recipe/election.go",
			old: "k.standing.fail(context.Cause(registered))", new: "_ = registered",
			pkg: "./client/recipe", test: "TestCandidateLosesItsNameWhileItStandsBack",
		},
		{
			name: "a sequencer file is of one chubbyctl", file: "cmd/chubbyctl/sequencerfile.go",
			old: "	if isKeptByAnother(o.sequencerFile, own) {", new: "	if false && isKeptByAnother(o.sequencerFile, own) {",
			pkg: "./cmd/chubbyctl", test: "TestSequencerFileIsNotShared",
		},
		{
			name: "what a killed chubbyctl has left is taken over", file: "cmd/chubbyctl/sequencerfile.go",
			old: "== text && flock.IsLocked(f)", new: "== text",
			pkg: "./cmd/chubbyctl", test: "TestSequencerFileIsTakenOver",
		},
		{
			name: "a sequencer file is given up with the lock", file: "cmd/chubbyctl/sequencerfile.go",
			old: "				err = os.Remove(o.sequencerFile)\n			}\n			_ = kept.Close()", new: "			}\n			_ = kept.Close()",
			pkg: "./cmd/chubbyctl", test: "TestSequencerFileIsTakenOver",
		},
		{
			name: "nothing is left of a guardian that reported nothing", file: "cmd/chubbyctl/internal/supervise/ending_unix.go",
			old: "	orphans := p.killOrphans()\n	if p.pid == 0 {", new: "	orphans := 0\n	if p.pid != 0 {\n		orphans = p.killOrphans()\n	}\n	if p.pid == 0 {",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestGuardianEndsUnheard",
		},
		{
			name: "a guardian that has nothing left to do is not waited for", file: "cmd/chubbyctl/internal/supervise/ending_unix.go",
			old: "	if p.gone || p.err != nil { // it has nothing left", new: "	if false { // it has nothing left",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestGuardianDoesNotEnd",
		},
	}
}

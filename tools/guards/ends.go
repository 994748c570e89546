package main

// endSafeguards cover the client library's work after something has ended, or was refused.
func endSafeguards() []safeguard {
	return []safeguard{
		{
			name: "what waits is told before Close returns", file: "client/notifier.go",
			old: "			stopped = true\n", new: "			return\n",
			pkg: "./client", test: "TestClosedAfterTheLastNotice",
		},
		{
			name: "an audit that will not be holds nothing back", file: "client/audit.go",
			old: "	defer c.auditor.stop()\n", new: "",
			pkg: "./client", test: "TestMissingEventsAndTheEnd",
		},
		{
			name: "a short deadline says nothing of the cell", file: "client/cleanup.go",
			old: "(late || errors.Is(err, context.Canceled))", new: "(late || true)",
			pkg: "./client", test: "TestPartingAfterAShortDeadline",
		},
		{
			name: "a refused value is not announced again", file: "client/recipe/presence.go",
			old: "	if err != nil && !errors.Is(err, api.Uncertain) {\n", new: "	if false {\n",
			pkg: "./client/recipe", test: "TestRefusedUpdate",
		},
		{
			name: "a wait that was given up says so", file: "client/recipe/upkeep.go",
			old: "why = ended(ctx, ctx.Err(), \"wait for the \"+what, path)", new: "why = ctx.Err()",
			pkg: "./client/recipe", test: "TestWatchConfigGivenUp",
		},
		{
			name: "the end of a node is told whatever else is", file: "cell/internal/master/mailbox.go",
			old: " || invalidates(e) && b.ends < api.MaxHandles)", new: ")",
			pkg: "./cell/internal/master", test: "TestMailboxLosesNothingInSilence",
		},
		{
			name: "the end of a node is told whatever else is (recipes)", file: "cell/internal/master/mailbox.go",
			old: " || invalidates(e) && b.ends < api.MaxHandles)", new: ")",
			pkg: "./client/recipe", test: "TestEndOfANodeAmongTooManyEvents",
		},
		{
			name: "ends of handles are bounded", file: "cell/internal/master/mailbox.go",
			old: "invalidates(e) && b.ends < api.MaxHandles", new: "invalidates(e)",
			pkg: "./cell/internal/master", test: "TestEndsOfHandlesAreBounded",
		},
	}
}

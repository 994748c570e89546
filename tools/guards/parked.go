package main

// parkedSafeguards cover KeepAlives that wait without a goroutine.
func parkedSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a KeepAlive that waits has no goroutine", file: "cell/internal/wire/sessions.go",
			old: "_KeepAlives_FullMethodName, rest); resume != nil {\n", new: "_KeepAlives_FullMethodName, rest); resume != nil && false {\n",
			pkg: "./e2e", test: "TestManySessions",
		},
		{
			name: "a call that is parked ends when nobody waits for it", file: "cell/internal/master/parked.go",
			old: "		k.unbind = context.AfterFunc(ctx, k.place.hurry)\n", new: "		k.unbind = func() bool { return true }\n",
			pkg: "./cell/internal/master", test: "TestParkedKeepAliveIsResumed",
		},
		{
			name: "calls that are parked end with the epoch", file: "cell/internal/master/master.go",
			old: "		m.Sessions.endCalls()\n", new: "",
			pkg: "./cell/internal/master", test: "TestParkedKeepAliveIsResumed",
		},
		{
			name: "no KeepAlive is parked after the epoch", file: "cell/internal/master/keepalive.go",
			old: "	if err == nil && s.epoch.ctx.Err() != nil { // endCalls may have passed\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestParkedKeepAliveIsResumed",
		},
		{
			name: "a client whose answer came too late has its lease with the next", file: "cell/internal/master/keepalive.go",
			old: "		box.asked = true\n", new: "",
			pkg: "./cell/internal/master", test: "TestGrantAfterALateAnswer",
		},
		{
			name: "what takes something away is not told aside", file: "cell/internal/master/mailbox.go",
			old: "	return e.Kind.Subscribable() && e.Kind != api.EventConflictingLock", new: "	return e.Kind.Subscribable()",
			pkg: "./cell/internal/master", test: "TestNotToldAside",
		},
		{
			name: "what is told aside is bounded", file: "cell/internal/master/mailbox.go",
			old: "	if len(b.events) > maxToldAside || b.mail.isCrowded(b.principal) {\n", new: "	if len(b.events) > maxToldAside {\n",
			pkg: "./cell/internal/master", test: "TestToldAsideIsBounded",
		},
		{
			name: "what a call is answered with is acknowledged before anything is extended", file: "cell/internal/master/mailbox.go",
			old: "	b.owed, b.owedAtDelivery = b.delivered, b.essential\n", new: "	b.owedAtDelivery = b.essential\n",
			pkg: "./cell/internal/master", test: "TestToldAsideIsExtended",
		},
		{
			name: "a call that has been replaced tells nothing", file: "cell/internal/master/parked.go",
			old: "!ok || box.calls != k.number || ", new: "!ok || ",
			pkg: "./cell/internal/master", test: "TestReplacedTellsNothing",
		},
		{
			name: "a call that has been replaced owes nothing", file: "cell/internal/master/keepalive.go",
			old: "	if box.calls != k.number { //", new: "	if false { //",
			pkg: "./cell/internal/master", test: "TestLateAnswerOwesNothing",
		},
		{
			name: "a call that is due tells nothing aside", file: "cell/internal/master/parked.go",
			old: " || k.place.isDue() {\n", new: " {\n",
			pkg: "./cell/internal/master", test: "TestDueWhileTelling",
		},
		{
			name: "a call that becomes due while it tells is answered", file: "cell/internal/master/parked.go",
			old: "	if k.place.isDue() { // since before resume was known\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestDueWhileTelling",
		},
		{
			name: "a call may be parked again", file: "internal/frames/park.go",
			old: "p.call.returned(p.rest())", new: "p.call.answer(p.rest())",
			pkg: "./internal/frames", test: "TestParkedAgain",
		},
		{
			name: "a client keeps its session with a master of before", file: "client/keepalivecalls.go",
			old: "	case status.Code(err) == codes.Unimplemented:\n", new: "	case false:\n",
			pkg: "./client", test: "TestEvents",
		},
	}
}

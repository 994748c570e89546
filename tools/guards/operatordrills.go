package main

// operatorDrillSafeguards are those of the drills that operators ask for.
func operatorDrillSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a drill is for operators", file: "cell/internal/wire/drill.go",
			old: "CheckOperator(ctx, who); err != nil {", new: "CheckOperator(ctx, who); err != nil && false {",
			pkg: "./cell", test: "TestDrillsAreRefused",
		},
		{
			name: "an outage has a bound", file: "cell/internal/wire/drill.go",
			old: "	if d.Kind == Outage {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestDrillsAreRefused",
		},
		{
			name: "there is one drill at a time", file: "cell/drills.go",
			old: "	if d.last != nil && !d.last.over {\n		return nil, api", new: "	if false {\n		return nil, api",
			pkg: "./cell", test: "TestDrillsAreRefused",
		},
		{
			name: "a cell rests before a drill", file: "cell/drills.go",
			old: "rested < drillRest {", new: "rested < 0 {",
			pkg: "./cell", test: "TestDrillsAreRefused",
		},
		{
			name: "a drill ends soon after its master", file: "cell/drills.go",
			old: "			limit.Reset(r.drills.hasten(one))\n", new: "",
			pkg: "./cell", test: "TestDrillEndsSoonAfterItsMaster",
		},
		{
			name: "an outage ends by itself", file: "cell/drills.go",
			old: "		case <-limit:\n			waiting = false\n", new: "",
			pkg: "./cell", test: "TestDrillOutage",
		},
		{
			name: "an outage ends with its call", file: "cell/drills.go",
			old: "		case <-ctx.Done():\n			waiting = false\n", new: "",
			pkg: "./cell", test: "TestDrillOutageEndsWithItsCaller",
		},
		{
			name: "after an outage another replica is elected", file: "cell/drills.go",
			old: "		case <-r.epochsEnded:\n			return nil\n		}\n	}\n	return r.fillVacancy(context.WithoutCancel(ctx), term)\n", new: "		case <-r.epochsEnded:\n			return nil\n		}\n	}\n	return nil\n",
			pkg: "./cell", test: "TestDrillOutage",
		},
		{
			name: "who asks for a drill is known before it", file: "cell/internal/wire/service.go",
			old: "a.request, a.before = m, a.service.witness(a.Context(), a.method, m)", new: "a.request = m",
			pkg: "./cell", test: "TestDrillIsAudited",
		},
		{
			name: "a sequencer that was shown is noted", file: "cell/internal/master/sequencers.go",
			old: "			one.checked = g.Generation\n", new: "			_ = one\n",
			pkg: "./cell", test: "TestListingsForDrills",
		},
		{
			name: "a plan says that its reader does not see everything", file: "cmd/chubbyctl/drillplan.go",
			old: "!overview.Whole\n", new: "overview.Whole && false\n",
			pkg: "./cmd/chubbyctl", test: "TestPlanOfWhoMayNotSeeEverything",
		},
	}
}

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
			name: "an outage ends by itself", file: "cell/drills.go",
			old: "		case <-limit:\n			waiting = false\n", new: "",
			pkg: "./cell", test: "TestDrillOutage",
		},
	}
}

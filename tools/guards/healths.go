package main

// healthSafeguards cover announcements that are bound to a check of the program's.
func healthSafeguards() []safeguard {
	const pkg, file = "./client/recipe", "client/recipe/health.go"
	return []safeguard{
		{
			name: "who is not healthy is withdrawn", file: file,
			old: "		defer context.AfterFunc(sound, cancel)()\n", new: "		_ = sound\n",
			pkg: pkg, test: "TestHealthy$|TestHealthyHangs",
		},
		{
			name: "who is withdrawn is not announced before a check passes", file: file,
			old: "		if sound.Err() == nil {\n", new: "		if sound != nil {\n",
			pkg: pkg, test: "TestHealthy$",
		},
		{
			name: "failures are counted in a row", file: file,
			old: "	case err == nil:\n		h.failed = 0\n", new: "	case err == nil:\n",
			pkg: pkg, test: "TestHealthy$",
		},
		{
			name: "a check that does not return has failed", file: file,
			old: "			late = true\n			h.note(", new: "			late = true\n			_ = error(",
			pkg: pkg, test: "TestHealthyHangs",
		},
		{
			name: "a value that was changed while one was withdrawn is announced", file: "client/recipe/presence.go",
			old: "		if away {\n			p.record = r\n		}\n", new: "",
			pkg: pkg, test: "TestHealthy$",
		},
		{
			name: "a change of who is withdrawn does not wait", file: "client/recipe/presence.go",
			old: "		if away {\n			return nil\n		}\n", new: "",
			pkg: pkg, test: "TestHealthy$",
		},
		{
			name: "withdrawing waits for the check, not the file", file: "client/recipe/presence.go",
			old: "	if p.health != nil {\n		<-p.health.checked\n	}\n", new: "",
			pkg: pkg, test: "TestHealthyHangs",
		},
		{
			name: "the first check comes before the file", file: "client/recipe/presence.go",
			old: "		p.away = !passed\n", new: "		_ = passed\n",
			pkg: pkg, test: "TestHealthyFirst",
		},
		{
			name: "a session that is over is why an announcement ends", file: file,
			old: "	case p.ctx.Err() == nil && within.Err() != nil:", new: "	case p.ctx.Err() == nil && p.c.Err() == nil && within.Err() != nil:",
			pkg: pkg, test: "TestHealthyAfterAPause",
		},
		{
			name: "who keeps a withdrawn file open ends no announcement", file: "client/recipe/presence.go",
			old: "		return o.again, exists", new: "		return false, exists",
			pkg: pkg, test: "TestHealthyWhoseFileIsHeld",
		},
	}
}

package main

// traceSafeguards cover what bounds traces, and who is believed.
func traceSafeguards() []safeguard {
	return []safeguard{
		{
			name: "who is not known begins no trace", file: "cell/internal/wire/door.go",
			old: "	defer s.recovered(method, &err)\n	if refusal =", new: "	defer s.recovered(method, &err)\n	s.endTrace(s.trace(ctx, method), nil, nil)\n	if refusal =",
			pkg: "./cell/internal/wire", test: "TestWhoIsBelievedToBeTraced",
		},
		{
			name: "what a client says of its trace has the length of a traceparent", file: "cell/internal/wire/trace.go",
			old: "	if len(text) != traceparentLength {\n", new: "	if text == \"?\" {\n",
			pkg: "./cell/internal/wire", test: "TestWhoIsBelievedToBeTraced",
		},
		{
			name: "KeepAlives are not traced", file: "cell/internal/wire/trace.go",
			old: "s.cfg.Tracer == nil || method == pb.Chubby_KeepAlive_FullMethodName ||", new: "s.cfg.Tracer == nil ||",
			pkg: "./cell/internal/wire", test: "TestWhoIsBelievedToBeTraced",
		},
		{
			name: "so many calls are traced in a second", file: "cell/tracing.go",
			old: "	return t.begun <= maxTraced\n", new: "	return true\n",
			pkg: "./cell", test: "TestTracesAreBounded",
		},
		{
			name: "the times of an entry are not those of another", file: "cell/tracing.go",
			old: "t.appended.First <= index && index <= t.appended.Last", new: "t.appended.First <= index",
			pkg: "./cell", test: "TestEntryTimes",
		},
		{
			name: "spans that wait for the collector are bounded and counted", file: "internal/otlp/exporter.go",
			old: "	if q.waiting.Add(1) > maxWaiting {\n", new: "	if q.waiting.Add(1) < 0 {\n",
			pkg: "./internal/otlp", test: "TestSlowCollector",
		},
		{
			name: "the trace of a call that did not come is not that of the next", file: "internal/frames/serverconn.go",
			old: "		if c.traced == h.Call {\n", new: "		if true {\n",
			pkg: "./internal/frames", test: "TestTraceOfAnother",
		},
	}
}

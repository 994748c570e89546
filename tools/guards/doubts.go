package main

// doubtGuards are those of what a master says of a request that it does not know the end
// of, and of the room that everybody has.
func doubtGuards() []guard {
	return []guard{
		{
			name: "the end of an epoch refuses nothing that the log was asked", file: "cell/locks.go",
			old: "	return raftfsm.Answer{}, w.forsaken(context.Cause(m.ctx))\n", new: "	return raftfsm.Answer{}, context.Cause(m.ctx)\n",
			pkg: "./cell", test: "TestEndOfEpochIsNoRefusal",
		},
		{
			name: "a session that is cut off is refused nothing that the log was asked", file: "cell/loss.go",
			old: "raftfsm.Refusal(w.forsaken(m.ended(id)))", new: "raftfsm.Refusal(m.ended(id))",
			pkg: "./cell", test: "TestEndOfEpochIsNoRefusal",
		},
		{
			name: "what was left without an answer stays in doubt", file: "cell/locks.go",
			old: "w.offered, w.doubt = false, w.doubt || doubt", new: "w.offered = false",
			pkg: "./cell", test: "TestDoubtStays",
		},
		{
			name: "KeepAlives find room beside large requests", file: "cell/inflight.go",
			old: "	if _, alive := request.(*pb.KeepAliveRequest); alive {\n", new: "	if _, alive := request.(*pb.KeepAliveRequest); alive && false {\n",
			pkg: "./cell", test: "TestRoomForSmallRequests",
		},
		{
			name: "each connection has room of its own", file: "cell/inflight.go",
			old: "f.from[from]+size > leastInflight && f.sum+size > f.all", new: "f.sum+size > f.all",
			pkg: "./cell", test: "TestRoomForSmallRequests",
		},
	}
}

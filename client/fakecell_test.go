package client

import (
	"context"
	"slices"

	"github.com/chubbylock/chubby/api/chubbypb"
)

// fakeCell is what one address says of the cell.
type fakeCell struct {
	chubbypb.UnimplementedCellServer
	*fake
	address string
}

func (f fakeCell) Locate(context.Context, *chubbypb.LocateRequest) (*chubbypb.LocateReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &chubbypb.LocateReply{Cell: "foo", CellId: testCellID, Replica: f.address, Master: f.master, MasterAddress: f.master, Epoch: f.epoch}, nil
}

func (f fakeCell) Status(context.Context, *chubbypb.StatusRequest) (*chubbypb.StatusReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	role, applied := "replica", uint64(90)
	if f.address == f.master {
		role, applied = "master", 100
	}
	return &chubbypb.StatusReply{Cell: "foo", CellId: testCellID, Master: f.master[:1], Epoch: f.epoch, Sessions: uint64(len(f.sessions)),
		Replica: &chubbypb.ReplicaStatus{Id: f.address[:1], Role: role, Client: f.address, Applied: applied, Healthy: true, Version: "0.1.0"}}, nil
}

func (f fakeCell) Members(context.Context, *chubbypb.MembersRequest) (*chubbypb.MembersReply, error) {
	var list []*chubbypb.Member
	for _, address := range slices.Backward(addresses()) {
		list = append(list, &chubbypb.Member{Id: address[:1], Client: address, Voter: true})
	}
	return &chubbypb.MembersReply{Members: list}, nil
}

// state is what tests look at.
type state struct {
	writes   int
	contents string
	held     uint64 // generation of the lock; 0 when it is free
	handles  int    // of the only session
	acked    uint64
	told     uint64
}

func (f *fake) state() state {
	only := f.only()
	f.mu.Lock()
	defer f.mu.Unlock()
	s := state{writes: f.writes, contents: string(f.contents)}
	if f.holder != nil {
		s.held = f.holder.gen
	}
	if only != nil {
		s.handles, s.acked, s.told = len(only.handles), only.acked, only.told
	}
	return s
}

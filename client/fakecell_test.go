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
		Replica: &chubbypb.ReplicaStatus{Id: f.address[:1], Role: role, Client: f.address, Applied: applied, Healthy: true}}, nil
}

func (f fakeCell) Members(context.Context, *chubbypb.MembersRequest) (*chubbypb.MembersReply, error) {
	var list []*chubbypb.Member
	for _, address := range slices.Backward(addresses()) {
		list = append(list, &chubbypb.Member{Id: address[:1], Client: address, Voter: true})
	}
	return &chubbypb.MembersReply{Members: list}, nil
}

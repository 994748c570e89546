package raftfsm

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
)

// A part of a backup is as long as its nodes are, at least: one that is all empty nodes is not decoded.
func TestPartsAreAsLongAsTheirNodes(t *testing.T) {
	small := namespace.Node{Name: "/a", Kind: api.Directory, Instance: 1, Content: 1, ACLs: 1, ACL: api.ACL{}}
	part := RestoreAdd{Part: 1}
	for range 5000 {
		part.Nodes = append(part.Nodes, &small)
	}
	data, err := part.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := DecodeRestoreAdd(data); err != nil || len(again.Nodes) != len(part.Nodes) {
		t.Errorf("%d nodes in %d bytes: %v", len(part.Nodes), len(data), err)
	}
	part = RestoreAdd{Part: 1, Quotas: make([]PrincipalQuota, maxAddedQuotas)}
	if data, err = part.Encode(); err != nil {
		t.Fatal(err)
	}
	if again, err := DecodeRestoreAdd(data); err != nil || len(again.Quotas) != maxAddedQuotas {
		t.Errorf("%d quotas in %d bytes: %v", len(part.Quotas), len(data), err)
	}
	const length = api.MaxCommand - 64
	empty := append([]byte{0xa2, 0x01, 0x01, 0x02, 0x9a}, binary.BigEndian.AppendUint32(nil, length)...)
	for range length {
		empty = append(empty, 0xa0)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = DecodeRestoreAdd(empty)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, api.InvalidArgument) || took > length {
		t.Errorf("%d empty nodes take %d bytes: %v", length, took, err)
	}
}

package cell_test

import (
	"context"
	"encoding/binary"
	"hash/crc64"
	"strings"
	"testing"

	pb "github.com/chubbylock/chubby/api/chubbypb"
	"github.com/chubbylock/chubby/cell/celltest"
	"github.com/chubbylock/chubby/cell/internal/audit"
)

// requestHash is the hash of a request as the replica makes it (wire.mutationOf).
func requestHash(parts ...[]byte) uint64 {
	sum, table := uint64(1), crc64.MakeTable(crc64.ECMA)
	for _, part := range parts {
		sum = crc64.Update(sum+uint64(len(part)), table, part)
	}
	return sum
}

// lastPart returns eight bytes that, as the last part of a request, give it a hash.
func lastPart(wanted uint64, before ...[]byte) []byte {
	table := crc64.MakeTable(crc64.ECMA)
	var byTop [256]byte
	for i, v := range table {
		byTop[v>>56] = byte(i)
	}
	state := ^wanted
	for range 8 {
		i := byTop[state>>56]
		state = (state^table[i])<<8 | uint64(i)
	}
	return binary.LittleEndian.AppendUint64(nil, state^^(requestHash(before...)+8))
}

// What was done is recorded as an act, and nothing else is: of who has no right to end a session, to change a list or the members, or to finish an
// upgrade, it is said that nothing is known, whatever he has done under the number of that request before.
func TestNobodyForgesActs(t *testing.T) {
	inAuditedCell(t, func(t *testing.T, ctx context.Context, c *celltest.Cell, records func() []auditRecord) {
		root, eve := as(t, ctx, c, "root"), callerAs(t, ctx, c, "eve")
		number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
		put := func(path string, contents []byte) []*pb.TxnOperation {
			return []*pb.TxnOperation{{Action: pb.TxnAction_TXN_ACTION_PUT, Path: path, Contents: contents}}
		}
		partsOf := func(path string) [][]byte {
			return [][]byte{[]byte("commit"), number(0), number(uint64(pb.TxnAction_TXN_ACTION_PUT)), []byte(path)}
		}
		const own, operators = "/ls/local/eves", "/ls/local/acl/operators"
		target, list := uint64(root.Session()), []byte("eve\n")
		for what, forged := range map[string]struct {
			parts [][]byte // of its hash
			call  func(m *pb.Mutation) error
		}{
			"EndSession": {parts: [][]byte{[]byte("end"), number(target), []byte("because")}, call: func(m *pb.Mutation) error {
				_, err := eve.EndSession(ctx, &pb.EndSessionRequest{Caller: eve.who, Mutation: m, Target: target, Reason: "because"})
				return err
			}},
			"ChangeMembers": {parts: [][]byte{[]byte("change the members"), nil, nil, []byte("r1"), []byte("false"), nil}, call: func(m *pb.Mutation) error {
				_, err := eve.ChangeMembers(ctx, &pb.ChangeMembersRequest{Caller: eve.who, Mutation: m, Remove: "r1"})
				return err
			}},
			"FinishUpgrade": {parts: [][]byte{[]byte("finish the upgrade"), nil}, call: func(m *pb.Mutation) error {
				_, err := eve.FinishUpgrade(ctx, &pb.FinishUpgradeRequest{Caller: eve.who, Mutation: m})
				return err
			}},
			"Txn": {parts: append(partsOf(operators), list), call: func(m *pb.Mutation) error {
				_, err := eve.Txn(ctx, &pb.TxnRequest{Caller: eve.who, Mutation: m, Operations: put(operators, list)})
				return err
			}},
		} {
			m := eve.next()
			contents := lastPart(requestHash(forged.parts...), partsOf(own)...)
			if _, err := eve.Txn(ctx, &pb.TxnRequest{Caller: eve.who, Mutation: m, Operations: put(own, contents)}); err != nil {
				t.Fatal(err)
			}
			if all := records(); len(all) > 0 {
				t.Errorf("to write a file of one's own is no act: %+v", all)
			}
			for range 3 {
				if err := forged.call(m); err != nil {
					t.Fatal(what, err)
				}
			}
			all := records()
			for _, r := range all {
				if r.Call != what || r.Principal != "eve" || r.Code != "Uncertain" || !strings.HasPrefix(r.Message, audit.NotKnown) {
					t.Errorf("%s is recorded as done: %+v", what, r)
				}
			}
			if len(all) != 3 {
				t.Errorf("%s: %d records of 3 calls", what, len(all))
			}
		}
		if _, err := root.Cell().Status(ctx); err != nil {
			t.Error(err)
		}
	})
}

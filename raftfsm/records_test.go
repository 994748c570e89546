package raftfsm

import (
	"encoding/binary"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/namespace"
	"github.com/chubbylock/chubby/session"
)

// records returns the types of everything in the log and in snapshots.
func records() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[Entry](),
		reflect.TypeFor[header](),
		reflect.TypeFor[session.Session[Answer]](),
		reflect.TypeFor[namespace.Node](),
		reflect.TypeFor[delayRecord](),
		reflect.TypeFor[quotaRecord](),
		reflect.TypeFor[pastRecord](),
	}
}

// everyField calls do once with each field of the records and of the types in them, and with the name of its struct.
func everyField(do func(owner string, field reflect.StructField)) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(t.Elem())
		case reflect.Map:
			walk(t.Key())
			walk(t.Elem())
		case reflect.Struct:
			if seen[t] {
				return
			}
			seen[t] = true
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() {
					do(shortName(t), f)
					walk(f.Type)
				}
			}
		}
	}
	for _, t := range records() {
		walk(t)
	}
}

// shortName returns a type's name with its package, without its type parameters.
func shortName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.String(), "[")
	return name
}

// texts lists the text fields in the log and in snapshots: what users supplied, and what names the cell.
func texts() map[string]string {
	const (
		name      = "a name that a user chose"
		principal = "whom a client is, by its certificate or its configuration"
		words     = "a user's own words, for others"
		cell      = "the cell's configuration"
		replica   = "the id of a replica, as its configuration has it"
		address   = "where a replica can be reached"
	)
	return map[string]string{
		"api.ACL.Read":                     name,
		"api.ACL.Write":                    name,
		"api.ACL.Change":                   name,
		"api.Holding.Host":                 "where a client said that it ran",
		"api.Holding.Principal":            principal,
		"api.Holding.Reason":               words,
		"api.Holding.EndedBy":              principal,
		"api.Holding.EndedWhy":             words,
		"namespace.Holder.DeclaredOwner":   name,
		"namespace.Holder.Reason":          words,
		"namespace.Node.Name":              name,
		"namespace.Node.Creator":           principal,
		"namespace.Ref.Name":               name,
		"raftfsm.Condition.Name":           name,
		"raftfsm.Operation.Name":           name,
		"raftfsm.Claim.DeclaredOwner":      name,
		"raftfsm.Claim.Reason":             words,
		"raftfsm.CreateSession.Host":       "where a client says that it runs",
		"raftfsm.CreateSession.Principal":  principal,
		"raftfsm.EndDelay.Name":            name,
		"raftfsm.ChangeMembers.Keep":       replica,
		"raftfsm.ChangeMembers.Remove":     replica,
		"raftfsm.Member.Client":            address,
		"raftfsm.Member.HTTP":              address,
		"raftfsm.Member.ID":                replica,
		"raftfsm.Member.Incarnation":       "drawn by a replica for its data directory",
		"raftfsm.Member.Raft":              address,
		"raftfsm.Member.Replaces":          replica,
		"raftfsm.SettleMember.ID":          replica,
		"raftfsm.SettleMember.Replaces":    replica,
		"raftfsm.NewEpoch.Cell":            cell,
		"raftfsm.NewEpoch.CellID":          cell,
		"raftfsm.NewEpoch.Operators":       principal,
		"raftfsm.Open.Name":                name,
		"raftfsm.Precondition.Lock":        name,
		"raftfsm.Revoke.Why":               words,
		"raftfsm.PrincipalQuota.Principal": principal,
		"raftfsm.RestoreBegin.Cell":        cell,
		"raftfsm.RestoreBegin.CellID":      cell,
		"raftfsm.Restore.Operator":         principal,
		"raftfsm.RestoreSeal.Why":          words,
		"raftfsm.Roster.Author":            principal,
		"raftfsm.BackupSource.Recovered":   replica,
		"raftfsm.SetQuota.Principal":       principal,
		"raftfsm.Stat.Name":                name,
		"raftfsm.Terminate.Why":            words,
		"raftfsm.delayRecord.Name":         name,
		"raftfsm.header.Cell":              cell,
		"raftfsm.header.CellID":            cell,
		"raftfsm.header.Origin":            cell,
		"raftfsm.pastHeader.Hand":          name,
		"raftfsm.pastRecord.Name":          name,
		"raftfsm.pastHand.Creator":         principal,
		"raftfsm.pastHand.Hand":            name,
		"raftfsm.quotaRecord.Principal":    principal,
		"refusal.Intervention.Principal":   principal,
		"refusal.Intervention.Why":         words,
		"refusal.Refusal.List":             name,
		"refusal.Refusal.Name":             name,
		"refusal.Refusal.Path":             name,
		"refusal.Refusal.Principal":        principal,
		"refusal.Wait.Owner":               name,
		"refusal.Wait.Path":                name,
		"session.Session.Host":             "where a client says that it runs",
		"session.Session.Principal":        principal,
	}
}

// The replicated state contains no sentences of this program: a refusal has a cause and facts (package refusal). So two
// versions that word something differently have equal states, and equal hashes of them, after the same log.
func TestNoProseIsReplicated(t *testing.T) {
	allowed := texts()
	everyField(func(owner string, f reflect.StructField) {
		kind := f.Type
		for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		field := owner + "." + f.Name
		switch {
		case kind.Kind() == reflect.Interface || kind.Kind() == reflect.Map:
			t.Errorf("%s may hold anything: give it a type", field)
		case kind.Kind() == reflect.String && allowed[field] == "":
			t.Errorf("%s is text in the log or in snapshots. If it is a sentence, give it a refusal.Cause or a typed record, and make the sentence where it is shown; if users supply it, list it in texts with the reason", field)
		}
		delete(allowed, field)
	})
	for field := range allowed {
		t.Errorf("%s is listed as text, and is not in the log or in snapshots", field)
	}
}

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

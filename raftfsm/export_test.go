package raftfsm

import "github.com/chubbylock/chubby/api"

// DecodeFast reads an entry without entryCodec, as far as that goes.
func DecodeFast(data []byte) (Entry, bool) { return decodeFast(data[1:]) }

// DecodeSlow reads an entry with entryCodec alone.
func DecodeSlow(data []byte) (e Entry, err error) {
	err = entryCodec.dec.Unmarshal(data[1:], &e)
	return e, err
}

// EncodeSlow writes anything with entryCodec alone.
func EncodeSlow(v any) ([]byte, error) { return entryCodec.enc.Marshal(v) }

// MaxPast is how many holdings a cell remembers.
const MaxPast = maxPast

// BoundPast sets how many holdings a state remembers.
func BoundPast(s *State, most int) { s.past.most = most }

// AddPast has a state remember a holding that may never have been.
func AddPast(s *State, name api.Name, h *api.Holding) {
	s.Edit()
	at := place{name: name}
	if n, there := s.Tree.Get(name); there {
		at.creator = n.Creator
	}
	s.past.add(at, h)
	s.Settle()
}

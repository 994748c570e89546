package raftfsm

import "io"

// ReadStateUpTo is ReadState for a replica that knows feature levels up to that one.
func ReadStateUpTo(r io.Reader, known int) (State, error) { return readState(r, known) }
